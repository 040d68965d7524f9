"""The account that Postgres runs under as root: made once, however many ask for it at once."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hocket.kit.embedded import account as module
from hocket.kit.embedded.account import Account, account_for_postgres
from hocket.kit.embedded.errors import NoUnprivilegedAccount

ASKING = 8
NAMESPACED = """
set -e
mkdir {copy} {told}
cp -a /etc/. {copy}
sed -i '/^pgserver:/d' {copy}/passwd {copy}/shadow {copy}/group {copy}/gshadow
rm -f {copy}/*.lock
mount --bind {copy} /etc
for number in $(seq {asking}); do {python} -c '
from pathlib import Path
from hocket.kit.embedded.account import account_for_postgres
account = account_for_postgres(Path("/nonexistent/cluster"))
Path("{told}/'$number'").write_text(repr(account))
' & done
wait
"""


@pytest.fixture
def as_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "ACCOUNTS", tmp_path)
    return tmp_path


def test_who_comes_second_finds_the_account_that_the_first_has_made(
    as_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Account] = []
    monkeypatch.setattr(module, "_existing_account", lambda: made[0] if made else None)

    def make() -> Account:
        made.append(Account(900 - len(made), 900))  # as useradd does: another number each time
        return made[-1]

    monkeypatch.setattr(module, "_new_account", make)
    with ThreadPoolExecutor(ASKING) as pool:
        got = list(pool.map(lambda _: account_for_postgres(as_root / "none"), range(ASKING)))
    assert got == [Account(900, 900)] * ASKING
    assert len(made) == 1


def test_a_list_of_accounts_that_stays_locked_is_named(
    as_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(module, "_existing_account", lambda: None)
    holder = os.open(as_root, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(NoUnprivilegedAccount, match=str(as_root)):
            account_for_postgres(as_root / "none")
    finally:
        os.close(holder)


def test_a_folder_that_only_the_account_may_pass_through_is_no_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with capture_logs() as told:
        module._let_pass(Account(65_534, 65_534), tmp_path)
    if told[0]["event"] == "folder_opened_to_all":
        pytest.skip("this file system has no access control lists")
    assert [(one["event"], one["log_level"]) for one in told] == [
        ("folder_opened_to_account", "debug")
    ]
    assert module._may_pass(Account(65_534, 65_534), tmp_path)
    assert not module._may_pass(Account(65_533, 65_533), tmp_path)


def test_a_folder_that_is_opened_to_all_is_a_warning_with_a_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lists(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no lists here")

    monkeypatch.setattr(os, "setxattr", no_lists)
    tmp_path.chmod(0o700)
    with capture_logs() as told:
        module._let_pass(Account(65_534, 65_534), tmp_path)
    (warning,) = told
    assert (warning["log_level"], warning["folder"]) == ("warning", str(tmp_path))
    assert "`pgserver`" in warning["reason"]
    assert "chmod o-x" in warning["cure"]
    assert tmp_path.stat().st_mode & 0o777 == 0o701


def test_processes_that_start_for_the_first_time_at_once_get_one_account(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("useradd")):
        pytest.skip("only root makes accounts, and only in a namespace of its own is it tried")
    told = tmp_path / "told"  # a file each: what eight processes print at once may be interleaved
    script = NAMESPACED.format(
        copy=tmp_path / "etc", told=told, python=sys.executable, asking=ASKING
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode and "mount" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    accounts = [file.read_text() for file in told.iterdir()]
    assert (len(accounts), len(set(accounts))) == (ASKING, 1), done.stdout + done.stderr
