"""The account under which Postgres runs when Hocket runs as root, which Postgres refuses.

Without root, this module does nothing: Postgres runs as the user. As root, the owner of an
existing cluster is kept; otherwise the system account `pgserver` is used, and created if need be
(the wheel that carries Postgres uses the same one). Only one process at a time creates it, because
concurrent runs of `useradd` would each give the account another number.

The account must be able to traverse the folders above its data and its programs. Where a folder is
closed to it, it alone is granted traversal (an access control list entry with `x`). On file systems
without such lists, everyone may traverse the folder, but not list it (`o+x`), and a warning says so.
"""

import errno
import fcntl
import os
import pwd
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from hocket.kit.embedded.errors import NoUnprivilegedAccount

ACCOUNT_NAME = "pgserver"
ACCOUNTS = Path("/etc")
"""The folder of the account database, which is locked while our account is looked up and created."""
LOCK_TIMEOUT_S = 60.0
LOCK_PAUSE_S = 0.05
USERADD_TIMEOUT_S = 20.0
"""`useradd` itself waits up to 15 s for the account database."""
USERADD_ATTEMPTS = 3

OPENED_TO_ALL = (
    f"Postgres does not run as root, but as `{ACCOUNT_NAME}`, which has to pass through this folder; "
    "its file system cannot allow that to one account, so all accounts may now pass through (`o+x`), "
    "but not list it"
)
CLOSING = (
    "Run Hocket as another user than root, or in a data folder that is not below this one; then close "
    "this one again with `chmod o-x`."
)

ACL_ATTRIBUTE = "system.posix_acl_access"
ACL_HEADER = struct.Struct("<I")
ACL_ENTRY = struct.Struct("<HHI")
ACL_VERSION = 2
ACL_NO_ID = 0xFFFFFFFF
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
EXECUTE = 0x1

log = structlog.get_logger(__name__)


class Account(NamedTuple):
    """A system account, by its numeric ids."""

    uid: int
    gid: int


class AclEntry(NamedTuple):
    """One entry of a POSIX access control list (acl(5)), as the kernel stores it."""

    tag: int
    permissions: int
    owner_id: int


def account_for_postgres(cluster: Path) -> Account | None:
    """Return the account to run Postgres under, created if need be; None if we are not root."""
    if os.geteuid() != 0:
        return None
    if cluster.exists():
        owner = cluster.stat()
        if owner.st_uid != 0:
            return Account(owner.st_uid, owner.st_gid)
    account = _existing_account()
    if account is None:
        with _locked(ACCOUNTS):
            account = _existing_account() or _new_account()
    return account


def let_account_reach(account: Account, *targets: Path) -> None:
    """Let the account traverse every folder on the path to each target, including the target."""
    for target in targets:
        real = target.resolve()
        for folder in (*reversed(real.parents), real):
            if not _may_pass(account, folder):
                _let_pass(account, folder)


def let_account_read(*packages: Path) -> None:
    """Let everyone read the programs in these folders, which a strict umask may have closed."""
    for package in packages:
        if package.exists() and _is_closed(package):
            for path in (package, *package.rglob("*")):
                _open_for_reading(path)


def _existing_account() -> Account | None:
    try:
        entry = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _new_account() -> Account:
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise NoUnprivilegedAccount(reason="there is no useradd program")
    command = [
        program,
        "--system",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        ACCOUNT_NAME,
    ]
    reason = ""
    for _ in range(USERADD_ATTEMPTS):  # a package manager may lock the account database for long
        try:
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=USERADD_TIMEOUT_S, check=False
            )
            reason = made.stderr.strip()
        except subprocess.TimeoutExpired:
            reason = f"useradd did not finish within {USERADD_TIMEOUT_S:g} s"
        account = _existing_account()
        if account is not None:
            log.info("system_account_ready", account=ACCOUNT_NAME, uid=account.uid)
            return account
    raise NoUnprivilegedAccount(reason=reason)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other Hockets out, whatever data folder they use; the kernel releases the lock when we
    end."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    reason = f"another process has kept {folder} locked for {LOCK_TIMEOUT_S:g} s"
                    raise NoUnprivilegedAccount(reason=reason) from None
                time.sleep(LOCK_PAUSE_S)  # flock has no timeout; this runs in a thread of its own
        yield
    finally:
        os.close(descriptor)


def _may_pass(account: Account, folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    entries = _acl(folder)
    named = [e for e in entries if e.tag == USER and e.owner_id == account.uid]
    if named:
        mask = next((e.permissions for e in entries if e.tag == MASK), EXECUTE)
        return bool(named[0].permissions & mask & EXECUTE)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _let_pass(account: Account, folder: Path) -> None:
    entries = _with_passage(_acl(folder) or _acl_of_mode(folder.stat().st_mode), account.uid)
    packed = ACL_HEADER.pack(ACL_VERSION) + b"".join(ACL_ENTRY.pack(*e) for e in entries)
    try:
        os.setxattr(folder, ACL_ATTRIBUTE, packed)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EINVAL):
            raise
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
        log.warning("folder_opened_to_all", folder=str(folder), reason=OPENED_TO_ALL, cure=CLOSING)
    else:
        log.debug("folder_opened_to_account", folder=str(folder), uid=account.uid)


def _with_passage(entries: list[AclEntry], uid: int) -> list[AclEntry]:
    kept = [e for e in entries if e.tag != MASK and (e.tag, e.owner_id) != (USER, uid)]
    before = [e for e in entries if (e.tag, e.owner_id) == (USER, uid)]
    masked = [e for e in entries if e.tag in (MASK, GROUP_OBJ)]
    passage = AclEntry(USER, (before[0].permissions if before else 0) | EXECUTE, uid)
    mask = (masked[-1].permissions if masked else 0) | EXECUTE
    return sorted(
        [*kept, passage, AclEntry(MASK, mask, ACL_NO_ID)], key=lambda e: (e.tag, e.owner_id)
    )


def _acl(folder: Path) -> list[AclEntry]:
    try:
        packed = os.getxattr(folder, ACL_ATTRIBUTE)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return []
    return [AclEntry(*fields) for fields in ACL_ENTRY.iter_unpack(packed[ACL_HEADER.size :])]


def _acl_of_mode(mode: int) -> list[AclEntry]:
    return [
        AclEntry(USER_OBJ, mode >> 6 & 7, ACL_NO_ID),
        AclEntry(GROUP_OBJ, mode >> 3 & 7, ACL_NO_ID),
        AclEntry(OTHER, mode & 7, ACL_NO_ID),
    ]


def _is_closed(package: Path) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH
    programs = (package, *package.glob("bin/postgres"), *package.glob("*.so*"))
    return any(path.stat().st_mode & wanted != wanted for path in programs)


def _open_for_reading(path: Path) -> None:
    if path.is_symlink():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    passing = stat.S_IXOTH if mode & stat.S_IXUSR else 0
    path.chmod(mode | stat.S_IROTH | passing)
