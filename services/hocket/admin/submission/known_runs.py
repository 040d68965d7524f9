"""Looks up the runs that idempotency keys already name, for many requests with one query; callers that
wait for the end of such a run hear of it by `PublicEnds`.

Lookups that arrive while a query is in progress are combined into the next one. A single lookup does not
wait, and a thousand concurrent requests cost two queries.
"""

import asyncio
from typing import TypeAlias

import asyncpg

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.submission.public_ends import PublicEnds

RUNS_OF_KEYS = """
SELECT found.tenant, found.run_id, found.pipeline, found.status, found.finished_at
FROM unnest($1::text[], $2::text[]) AS asked (tenant, run_id)
CROSS JOIN LATERAL (
    SELECT * FROM hocket.run one WHERE one.run_id = asked.run_id AND one.tenant = asked.tenant OFFSET 0
) found
"""
"""The given runs that exist, each found by its index: see `rows_of_runs`."""

_Asked: TypeAlias = "dict[tuple[str, str], asyncio.Future[asyncpg.Record | None]]"


class KnownRuns:
    """Looks up runs by tenant and id for the tasks of one event loop."""

    def __init__(self) -> None:
        self.ends = PublicEnds()
        self._waiting: _Asked = {}
        self._task: asyncio.Task[None] | None = None

    async def find(self, pool: Pool, tenant: str, run_id: str) -> asyncpg.Record | None:
        """Return tenant, id, pipeline, status and end of a run, or None if there is no such run. Raises
        the errors of the query."""
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
                except Exception as error:  # passed on to every waiting caller
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
        found.exception()  # the caller may have been cancelled
