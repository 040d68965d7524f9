"""Tells which sessions hold the locks that a migration waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

LOOK_EVERY_S = 0.05
CONNECT_TIMEOUT_S = 5.0
MOST = 3
"""So many sessions are named; there may be many."""
_HOLDERS = """
SELECT blocking.pid, a.usename, a.application_name, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM (SELECT DISTINCT pid FROM unnest(pg_catalog.pg_blocking_pids($1)) AS found (pid)) AS blocking
LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
ORDER BY a.xact_start NULLS LAST
"""


@dataclass
class Holders:
    """The sessions that were seen last."""

    rows: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        named = [_told(row) for row in self.rows[:MOST]]
        more = len(self.rows) - len(named)
        return ", ".join([*named, f"{more} more"] if more else named)

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [row["pid"] for row in self.rows[:MOST] if row["pid"]]

    @property
    def cure(self) -> str:
        """What can be done about them."""
        if not self.pids:
            return "See pg_locks and pg_stat_activity"
        ends = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in self.pids)
        return f"Wait until they have ended, or end them ({ends})"

    @asynccontextmanager
    async def watching(self, database_url: str, pid: int) -> AsyncIterator[None]:
        """Note inside the block who keeps the session `pid` waiting."""
        task = asyncio.create_task(self._watch(database_url, pid))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self, database_url: str, pid: int) -> None:
        try:
            connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return  # the migration goes on without it
        try:
            while True:
                self.rows = await connection.fetch(_HOLDERS, pid) or self.rows
                await asyncio.sleep(LOOK_EVERY_S)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return
        finally:
            connection.terminate()


def _told(row: Any) -> str:
    if not row["pid"]:
        return "a prepared transaction (see pg_prepared_xacts)"
    name = f"`{row['application_name']}`" if row["application_name"] else "without a name"
    since = "" if row["seconds"] is None else f", {row['state']}, for {row['seconds']:.0f} s"
    return f"session {row['pid']} of user `{row['usename']}` (application {name}{since})"
