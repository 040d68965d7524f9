"""When this database was restored, and from which backup: it lacks what was accepted in between."""

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
    """A restore: when it took place, and when its backup began, as text for people."""

    restored_at: str
    backup_at: str


async def note(connection: asyncpg.Connection, *, backup_began_at: datetime, release: str) -> None:
    """Record that this database was restored from a backup that `release` took."""
    await connection.execute(_NOTE, backup_began_at, release)


async def last(
    connection: asyncpg.Connection | asyncpg.Pool,
    *,
    timeout_s: float,
    within: timedelta | None = None,
) -> Restoration | None:
    """Return the last restore (no longer ago than `within`), None if there was none."""
    row = await connection.fetchrow(_LAST, within, timeout=timeout_s)
    if row is None:
        return None
    restored_at, backup_at = (f"{at:%Y-%m-%d %H:%M:%S} UTC" for at in row)
    return Restoration(restored_at=restored_at, backup_at=backup_at)
