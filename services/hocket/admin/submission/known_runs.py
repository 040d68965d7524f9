"""The runs that idempotency keys name already, looked up for many requests with one query.

While a query is under way, what else is asked waits for the next one, which asks for all of it: one
alone waits for nothing, and a thousand requests at once cost two queries.
"""

import asyncio
from typing import TypeAlias

import asyncpg

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool

RUNS_OF_KEYS = """
SELECT found.tenant, found.run_id, found.pipeline, found.status, found.finished_at
FROM unnest($1::text[], $2::text[]) AS asked (tenant, run_id)
CROSS JOIN LATERAL (
    SELECT * FROM hocket.run one WHERE one.run_id = asked.run_id AND one.tenant = asked.tenant OFFSET 0
) found
"""
"""Those of these runs that there are, each by its index: see `rows_of_runs`."""

_Asked: TypeAlias = "dict[tuple[str, str], asyncio.Future[asyncpg.Record | None]]"


class KnownRuns:
    """Looks up runs by tenant and id, as one event loop asks for them."""

    def __init__(self) -> None:
        self._waiting: _Asked = {}
        self._task: asyncio.Task[None] | None = None

    async def find(self, pool: Pool, tenant: str, run_id: str) -> asyncpg.Record | None:
        """Return tenant, id, pipeline, status and end of a run, None where there is none. Raises what
        the query raises."""
        found = self._waiting.get((tenant, run_id))
        if found is None:
            found = self._waiting[tenant, run_id] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._ask(pool), name="known-runs")
        return await asyncio.shield(found)

    async def _ask(self, pool: Pool) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    rows = await pool.fetch(
                        RUNS_OF_KEYS,
                        [tenant for tenant, _ in asked],
                        [run_id for _, run_id in asked],
                        timeout=QUERY_TIMEOUT_S,
                    )
                except Exception as error:  # each of those who asked gets it
                    _fail(asked, error)
                else:
                    by_run = {(row["tenant"], row["run_id"]): row for row in rows}
                    for run, found in asked.items():
                        found.set_result(by_run.get(run))
        finally:
            self._task = None


def _fail(asked: _Asked, error: Exception) -> None:
    for found in asked.values():
        found.set_exception(error)
        found.exception()  # whoever asked may have gone
