"""The files with the accounts of a NATS server that users run themselves.

They are an include for the server's configuration, and a URL for each user. The passwords, and the
secret of the process that decides which keys may connect, are generated once and kept. The include is
written anew each time, as each release may change what users may do; a different one is kept beside it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from hocket.kit.access.nats_accounts import USERS, accounts_text
from hocket.kit.access.nkeys import AccountKey, new_seed
from hocket.kit.embedded.secret_files import stored_password, write_private
from hocket.kit.nats.server_urls import server_urls
from hocket.schemas.errors import InvalidInput

ACCOUNTS = "accounts.conf"
EARLIER = "accounts.conf.before"
"""The last include that was different. One that somebody else wrote is not replaced by one that was
written here."""
MARK = "# written by hocket, unchanged: "
"""Begins the last line of an include, which has the hash of the lines before it."""
SEED = "access.seed"
DEFAULT_SERVER = "nats://nats:4222"


def kept_accounts(
    folder: Path, server: str | None = None, *, on_kept: Callable[[Path], None] = lambda _: None
) -> list[Path]:
    """Write the files into a folder, which is created if missing, and return their paths. `server` is
    `nats://nats:4222`, or several servers of a cluster separated by commas; a query names
    certificates. Without it, the URLs keep the servers that they have: raises InvalidInput if a file has
    none. `on_kept` is given the file with the include that was different, if it is written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    passwords = {user: stored_password(folder / f"{user}.password") for user in USERS}
    seed = folder / SEED
    if not seed.exists():
        write_private(seed, new_seed())
    accounts = folder / ACCOUNTS
    issuer = AccountKey(seed.read_text("ascii").strip()).public
    urls = {user: folder / f"{user}.url" for user in USERS}
    servers = {user: server or _server_in(url) for user, url in urls.items()}
    if _replace(accounts, accounts_text(passwords, issuer), folder / EARLIER):
        on_kept(folder / EARLIER)
    usual = next(filter(None, servers.values()), DEFAULT_SERVER)
    for user, url in urls.items():
        write_private(url, with_account(servers[user] or usual, f"{user}:{passwords[user]}"))
    return [accounts, *urls.values(), seed]


def _replace(file: Path, text: str, earlier: Path) -> bool:
    """Write a file; if it was there with another text, keep that, and return whether it was kept."""
    before = file.read_text("utf-8", errors="replace") if file.exists() else ""
    is_ours = before.strip() == _marked(before.rpartition(MARK)[0]).strip()
    is_other = before.strip() not in ("", text.strip(), _marked(text).strip())
    is_kept = is_other and not (is_ours and earlier.exists())
    if is_kept:
        write_private(earlier, before)
    write_private(file, _marked(text))
    return is_kept


def _marked(text: str) -> str:
    """Return an include with its last line, which tells whether somebody has changed it since."""
    lines = text.rstrip()
    return f"{lines}\n{MARK}{hashlib.sha256(lines.encode()).hexdigest()}\n"


def _server_in(url: Path) -> str:
    """Return the servers of a file with a URL, without the account; empty if the file has none, or there
    is no such file. Raises InvalidInput."""
    field = f"file {url}"
    try:
        text = url.read_text("utf-8-sig").strip() if url.exists() else ""
    except UnicodeDecodeError as error:
        cure = "Write it in UTF-8, or name the servers with --server."
        raise InvalidInput(field=field, reason="it is not UTF-8", cure=cure) from error
    found = ",".join(_without_account(part) for part in text.split(","))
    if found:
        server_urls(found, field=field)
    return found


def _without_account(url: str) -> str:
    place, query_mark, query = url.strip().partition("?")
    scheme, mark, rest = place.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}{query_mark}{query}"


def with_account(server: str, account: str) -> str:
    """Return the URL of one or several servers with the account added to each."""
    parts = []
    for part in server.split(","):
        scheme, mark, place = part.strip().rpartition("://")
        parts.append(f"{scheme}{mark or 'nats://'}{account}@{place}")
    return ",".join(parts)
