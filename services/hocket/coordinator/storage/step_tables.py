"""Which tables hold the steps and attempts of a run: those of the day on which it was accepted
(migration 0051, docs/decisions/0025-steps-by-day.md).

A day's tables are created ahead by the ledger, or by the first process that asks for them; they are
dropped when no run needs them any more. Postgres' answers are remembered until a table is gone
(`forget`).
"""

from collections.abc import Iterable, Mapping

import asyncpg

DAY_MS = 86_400_000.0
TIMEOUT_S = 30.0
NO_SUFFIX = ""
"""The parent tables themselves: for runs from before tables were split by day, and old runs whose
day was dropped."""
Placement = tuple[str, float]
"""The tenant of a run, and when it was accepted (epoch ms)."""

_COVER = "SELECT hocket.cover_steps(to_timestamp($1::double precision / 1000))"


class StepTables:
    """Remembers the table names of each day that was asked for."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._suffixes: dict[int, str] = {}

    async def suffixes(self, accepted_ms: Mapping[str, float]) -> dict[str, str]:
        """Return, by run id, the suffix of `step` and `attempt` in the names of each run's tables."""
        days = {run_id: _day(at_ms) for run_id, at_ms in accepted_ms.items()}
        await self._ask({day for day in days.values() if day not in self._suffixes})
        return {run_id: self._suffixes[day] for run_id, day in days.items()}

    def forget(self) -> None:
        """Forget the names, because a table that Postgres named is gone."""
        self._suffixes.clear()

    async def _ask(self, days: Iterable[int]) -> None:
        for day in sorted(days):
            found = await self._pool.fetchval(_COVER, day * DAY_MS, timeout=TIMEOUT_S)
            self._suffixes[day] = f"_{found}" if found else NO_SUFFIX


def _day(at_ms: float) -> int:
    return int(round(at_ms, 3) // DAY_MS)
