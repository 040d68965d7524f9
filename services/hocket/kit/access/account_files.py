"""The files with the accounts of a NATS server that users run themselves.

They are an include for the server's configuration, and a URL for each user. The passwords, and the
secret of the process that decides which keys may connect, are generated once and kept.
"""

from pathlib import Path

from hocket.kit.access.nats_accounts import USERS, accounts_text
from hocket.kit.access.nkeys import AccountKey, new_seed
from hocket.kit.embedded.secret_files import stored_password, write_private

ACCOUNTS = "accounts.conf"
SEED = "access.seed"


def kept_accounts(folder: Path, server: str) -> list[Path]:
    """Write the files into a folder, which is created if missing, and return their paths. `server` is
    `nats://nats:4222`, or several servers of a cluster separated by commas; a query names
    certificates."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    passwords = {user: stored_password(folder / f"{user}.password") for user in USERS}
    seed = folder / SEED
    if not seed.exists():
        write_private(seed, new_seed())
    accounts = folder / ACCOUNTS
    issuer = AccountKey(seed.read_text("ascii").strip()).public
    write_private(accounts, accounts_text(passwords, issuer))
    urls = []
    for user, password in passwords.items():
        urls.append(folder / f"{user}.url")
        write_private(urls[-1], with_account(server, f"{user}:{password}"))
    return [accounts, *urls, seed]


def with_account(server: str, account: str) -> str:
    """Return the URL of one or several servers with the account added to each."""
    parts = []
    for part in server.split(","):
        scheme, mark, place = part.strip().rpartition("://")
        parts.append(f"{scheme}{mark or 'nats://'}{account}@{place}")
    return ",".join(parts)
