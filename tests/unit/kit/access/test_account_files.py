"""The files with the accounts of one's own NATS servers are written again after an upgrade."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.kit.access import account_files
from hocket.kit.access.account_files import ACCOUNTS, DEFAULT_SERVER, EARLIER, kept_accounts
from hocket.schemas.errors import InvalidInput

CLUSTER = "tls://a:4222,tls://b:4222?ca=/tls/ca.crt&cert=/tls/tls.crt"


def files_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("server", [CLUSTER, "nats://n:4222", "n:4222", "tls://a:1,b:2", None])
def test_without_servers_the_urls_keep_those_that_they_have(
    server: str | None, tmp_path: Path
) -> None:
    kept_accounts(tmp_path, server)
    before = files_of(tmp_path)
    assert (server or DEFAULT_SERVER).rpartition("://")[2].partition(",")[0] in before["ledger.url"]

    kept_accounts(tmp_path)
    assert files_of(tmp_path) == before

    kept_accounts(tmp_path, "nats://other:4222")
    assert "@other:4222" in files_of(tmp_path)["ledger.url"]


def test_a_users_own_server_is_kept_and_a_new_user_gets_that_of_others(tmp_path: Path) -> None:
    kept_accounts(tmp_path, CLUSTER)
    own = tmp_path / "ledger.url"
    own.write_text(own.read_text().replace("tls.crt", "ledger.crt"))
    (tmp_path / "admin.url").unlink()
    (tmp_path / "ledger.password").write_text("new\n")
    kept_accounts(tmp_path)
    admin = (tmp_path / "admin.password").read_text().strip()
    assert (tmp_path / "admin.url").read_text().startswith(f"tls://admin:{admin}@a:4222,tls://")
    assert own.read_text() == (
        "tls://ledger:new@a:4222,tls://ledger:new@b:4222?ca=/tls/ca.crt&cert=/tls/ledger.crt\n"
    )


def test_an_edited_include_is_replaced_and_kept_beside_it(tmp_path: Path) -> None:
    accounts, *_ = kept_accounts(tmp_path)
    made = accounts.read_text()
    assert not (tmp_path / EARLIER).exists()

    accounts.write_text(f"# ours\n{made}")
    kept_accounts(tmp_path)
    assert accounts.read_text() == made
    assert (tmp_path / EARLIER).read_text() == f"# ours\n{made}"
    assert not (tmp_path / EARLIER).stat().st_mode & 0o077

    kept_accounts(tmp_path)
    assert (tmp_path / EARLIER).read_text().startswith("# ours\n")


def test_an_include_of_an_earlier_release_does_not_replace_what_a_user_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Path] = []
    accounts, *_ = kept_accounts(tmp_path, on_kept=kept.append)
    assert not kept

    def upgraded(number: int) -> None:
        monkeypatch.setattr(account_files, "accounts_text", lambda *_: f"release: {number}\n")
        kept_accounts(tmp_path, on_kept=kept.append)

    first = accounts.read_text()
    upgraded(2)
    assert (kept, (tmp_path / EARLIER).read_text()) == ([tmp_path / EARLIER], first)

    accounts.write_text("mine\n")
    upgraded(3)
    upgraded(4)
    assert (len(kept), (tmp_path / EARLIER).read_text()) == (2, "mine\n")
    assert accounts.read_text().startswith("release: 4\n")

    accounts.write_text(accounts.read_text().replace("4", "4 and mine"))
    upgraded(5)
    assert (len(kept), (tmp_path / EARLIER).read_text()[:19]) == (3, "release: 4 and mine")


@pytest.mark.parametrize("server", ["tls://a:4222?ca=/etc/nats@prod/ca.crt", "a:1?ca=/x@y,b:2"])
def test_a_query_is_kept_whole(server: str, tmp_path: Path) -> None:
    kept_accounts(tmp_path, server)
    before = files_of(tmp_path)
    kept_accounts(tmp_path)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        "tls://a:4222".encode("utf-16"),
        b"# ours\ntls://a:4222",
        b"a file",
        b"http://a",
        b"nats://u:p@",
    ],
    ids=["utf-16", "comment", "words", "http", "no host"],
)
def test_a_file_without_servers_is_refused_before_anything_is_written(
    content: bytes, tmp_path: Path
) -> None:
    kept_accounts(tmp_path)
    (tmp_path / "ledger.url").write_bytes(content)
    (tmp_path / ACCOUNTS).write_text("ours")
    with pytest.raises(InvalidInput, match=r"^`file .*/ledger\.url` is not valid: "):
        kept_accounts(tmp_path)
    assert (tmp_path / ACCOUNTS).read_text() == "ours"

    kept_accounts(tmp_path, "nats://a:4222")
    assert (tmp_path / "ledger.url").read_text().endswith("@a:4222\n")


def test_a_mark_of_an_editor_at_the_begin_is_no_part_of_a_url(tmp_path: Path) -> None:
    kept_accounts(tmp_path)
    (tmp_path / "ledger.url").write_text("tls://x:pw@a:4222\n", "utf-8-sig")
    kept_accounts(tmp_path)
    assert (tmp_path / "ledger.url").read_text().startswith("tls://ledger:")


def test_the_command_tells_on_standard_error_that_it_kept_an_include(tmp_path: Path) -> None:
    words = ["nats", "accounts", str(tmp_path), "--server", "tls://a:4222?ca=/x@y/ca.crt"]
    assert CliRunner().invoke(app, words).stderr == ""
    (tmp_path / ACCOUNTS).write_text("ours")
    done = CliRunner().invoke(app, words)
    told = f"accounts.conf was different; it is kept as {tmp_path / EARLIER}\n"
    assert (done.exit_code, done.stderr) == (0, told)
