"""The admin key of a platform on one machine: created at the first start, in a file that only its user
can read. The `hocket` command uses it automatically."""

from pathlib import Path

FILE = "admin.key"
NAME = "hocket up"


def read_admin_key(data_dir: Path) -> str | None:
    """Return the key of a data folder, or None if there is none."""
    try:
        return (data_dir / FILE).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


async def kept_admin_key(data_dir: Path, database_url: str) -> str:
    """Return the key of a data folder; a new one is created if there is none, or if it is not valid in
    this database."""
    import asyncpg

    from hocket.kit.access import key_store
    from hocket.kit.access.audit_log import Actor
    from hocket.kit.embedded.secret_files import write_private

    connection = await asyncpg.connect(database_url, timeout=30)
    try:
        known = read_admin_key(data_dir)
        if known is not None and await key_store.counts(connection, known):
            return known
        wanted = key_store.NewKey(NAME, "admin", None)
        _, key = await key_store.create(connection, wanted, Actor("hocket up", "local"))
    finally:
        await connection.close()
    write_private(data_dir / FILE, key)
    return key
