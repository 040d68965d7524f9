"""When this database was restored, and from which backup: what was accepted in between is not in it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

_NOTE = "INSERT INTO hocket.restoration (backup_began_at, hocket) VALUES ($1, $2)"
_LAST = """
SELECT restored_at, backup_began_at FROM hocket.restoration
WHERE $1::interval IS NULL OR restored_at > now() - $1::interval ORDER BY restored_at DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restore: when it was, and when its backup began, as people read them."""

    restored_at: str
    backup_at: str


async def note(connection: asyncpg.Connection, *, backup_began_at: datetime, release: str) -> None:
    """Write down that this database was restored from a backup that `release` took."""
    await connection.execute(_NOTE, backup_began_at, release)


async def last(
    connection: asyncpg.Connection | asyncpg.Pool,
    *,
    timeout_s: float,
    within: timedelta | None = None,
) -> Restoration | None:
    """Return the last restore (not longer ago than `within`), None where there was none."""
    row = await connection.fetchrow(_LAST, within, timeout=timeout_s)
    if row is None:
        return None
    restored_at, backup_at = (f"{at:%Y-%m-%d %H:%M:%S} UTC" for at in row)
    return Restoration(restored_at=restored_at, backup_at=backup_at)
