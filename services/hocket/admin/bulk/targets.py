"""The runs that a bulk operation means: counted before it begins, and then read a page at a time.

Both go by the moment of the count, so that runs accepted later, or late for their deadline later, do not
take the place of those that were counted.

Work must not be done twice. A retry of a run does the work of its sub-runs as well, and a run that was
retried is in the hands of its retry; so neither sub-runs nor retried runs are retried. A cancellation
ends sub-runs with the run that started them. It ends them alone only if the filter names their
pipeline: otherwise the steps that wait for them would fail, and be repaired, before they are cancelled.

No index covers deadlines and costs. A count compares those of all runs that match the rest of the
filter, within a time limit and with a place for long reads; a page compares those of TRIED_RUNS runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from hocket.admin.context import Context
from hocket.admin.pages import cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.runs import reads
from hocket.admin.runs.reads import LATEST_FIRST, TRIED_RUNS, RunFilter
from hocket.kit.postgres.lookups import OF_THIS_RUN
from hocket.schemas.administration.bulk import MAX_BULK_RUNS, BulkFilter
from hocket.schemas.errors import ErrorClass, HocketError

COUNT_TIMEOUT_S = 8.0
"""How long Postgres may count: less than QUERY_TIMEOUT_S, beyond which it is taken for unavailable."""

_RUN = "run_id, partition, pipeline, version, status, accepted_at, finished_at"
COLUMNS = {"cancel": _RUN, "retry": f"{_RUN}, input, labels, facts -> 'origin' AS origin"}
"""What an operation needs of its runs."""
RETRIED = """EXISTS (
    SELECT FROM hocket.run again
    WHERE again.facts ? 'origin' AND again.facts #>> '{origin,run_id}' = run.run_id
      AND again.facts #>> '{origin,operation}' = 'retry' AND again.tenant = $1
      AND again.status <> 'rejected' OFFSET 0)"""
"""Whether a run has a retry. One that was rejected did nothing. OFFSET has Postgres look for the retries
of one run at a time, by their index."""
CHANGEABLE = {
    "cancel": "finished_at IS NULL AND status = 'running'",
    "retry": "finished_at <= $2 AND status IN ('degraded', 'failed', 'cancelled', 'expired')"
    f" AND NOT {RETRIED}",
}
"""Which runs an action can change. The statuses are literals, so that partial indexes are used."""
MISSED = {"cancel": reads.OVERDUE.format(now="$2"), "retry": reads.MISSED}
"""Which of them gave no result by their deadline."""

BEGIN = "SELECT now() FROM set_config('statement_timeout', $1, true)"
"""Returns the time of the transaction, and limits its statements."""

_OF_DOOR = "u.tenant = $1 AND u.run_id LIKE 'r%' AND u.call_id LIKE 'http:%'"
COSTLY = f"""(spent_usd >= {{usd}} OR run_id IN (
    WITH RECURSIVE below(top, spent_usd, run_id) AS (
        SELECT run_id, spent_usd, run_id FROM hocket.run
        WHERE {{others}} AND spent_usd < {{usd}}
          AND EXISTS (SELECT FROM hocket.usage u WHERE {_OF_DOOR})
        UNION ALL
        SELECT below.top, below.spent_usd, r.run_id FROM below
        JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id AND r.tenant = $1
        WHERE r.parent IS NOT NULL
    )
    SELECT below.top FROM below JOIN hocket.usage u ON u.run_id = below.run_id
    WHERE {_OF_DOOR} AND {OF_THIS_RUN}
    GROUP BY below.top, below.spent_usd
    HAVING below.spent_usd + sum(u.cost_usd) >= {{usd}}))"""
"""Whether a run cost at least `usd`, with OUTSIDE_USD, which is computed at once for all runs that match
the other conditions and did not spend so much themselves."""


class BulkCountTooLong(HocketError):
    """Counting the runs that match the filter takes longer than {limit_s:g} s. Choose a shorter time
    span (`since`, `until`), so that fewer runs have to be compared."""

    code = "bulk_count_too_long"
    error_class = ErrorClass.INVALID


class Count(NamedTuple):
    """How many runs matched, and when that was, by the clock of the database."""

    matching: int
    at: datetime


class Page(NamedTuple):
    """Some runs, the place behind what was examined, as a cursor, and whether there is nothing behind
    it."""

    runs: Sequence[asyncpg.Record]
    place: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class Targets:
    """The runs of a tenant that an action can change and that matched a filter at a moment."""

    tenant: str
    action: str
    wanted: BulkFilter
    at: datetime

    @property
    def has_sub_runs(self) -> bool:
        """Whether runs are changed that other runs started and wait for."""
        return self.action == "cancel" and self.wanted.pipeline is not None

    @property
    def are_compared(self) -> bool:
        """Whether each run has to be examined."""
        return self.wanted.deadline_missed or self.wanted.min_cost_usd is not None

    def conditions(
        self, values: list[Any], after: str = "", back_to: tuple[datetime, str] | None = None
    ) -> str:
        """Return the conditions on `hocket.run` that indexes cover, for runs behind the place `after`,
        back to the time and id `back_to`; their parameters are appended to `values`, which is empty."""
        values += (self.tenant, self.at)
        own = RunFilter(
            pipeline=self.wanted.pipeline,
            status=self.wanted.status,
            since=self.wanted.since,
            until=self.wanted.until,
            labels=self.wanted.labels,
            error_code=self.wanted.error_code,
            back_to=back_to,
        )
        meant = f"tenant = $1 AND accepted_at <= $2 AND {CHANGEABLE[self.action]}\n"
        if not self.has_sub_runs:
            meant += "  AND parent IS NULL\n"
        return meant + reads.conditions_of(own, values, after or None)

    def compared(self, conditions: str, values: list[Any]) -> str:
        """Return these conditions with those on deadlines and costs, which are checked last."""
        if self.wanted.deadline_missed:
            conditions += f"  AND {MISSED[self.action]}\n"
        if self.wanted.min_cost_usd is not None:
            values.append(self.wanted.min_cost_usd)
            conditions += f"  AND {COSTLY.format(usd=f'${len(values)}', others=conditions)}\n"
        return conditions


async def count(
    context: Context, tenant: str, action: str, wanted: BulkFilter, most: int = MAX_BULK_RUNS
) -> Count:
    """Return how many runs match now, at most `most + 1`. Raises BulkCountTooLong."""
    async with (
        context.long_reads.place(tenant),
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
    ):
        try:
            async with connection.transaction(readonly=True):
                limit = f"{COUNT_TIMEOUT_S:g}s"
                at = await connection.fetchval(BEGIN, limit, timeout=QUERY_TIMEOUT_S)
                targets, values = Targets(tenant, action, wanted, at), list[Any]()
                meant = targets.compared(targets.conditions(values), values)
                query = f"SELECT FROM hocket.run WHERE {meant} LIMIT {most + 1}"
                query = f"SELECT count(*) FROM ({query}) AS meant"
                found = await connection.fetchval(query, *values, timeout=QUERY_TIMEOUT_S)
        except asyncpg.QueryCanceledError as error:
            raise BulkCountTooLong(field="filter", limit_s=COUNT_TIMEOUT_S) from error
    return Count(found, at)


async def next_page(pool: Pool, targets: Targets, after: str, limit: int) -> Page:
    """Return up to `limit` runs behind the place `after` ("" is the start), the latest first: fewer if
    there are no more, or only TRIED_RUNS were examined."""
    reach = await _reach(pool, targets, after) if targets.are_compared else None
    values = list[Any]()
    meant = targets.compared(targets.conditions(values, after, reach), values)
    query = (
        f"SELECT {COLUMNS[targets.action]} FROM hocket.run WHERE {meant} {LATEST_FIRST} {limit + 1}"
    )
    found = await pool.fetch(query, *values, timeout=QUERY_TIMEOUT_S)
    runs = found[:limit]
    if len(found) <= limit:
        return Page(runs, cursor(*reach) if reach else after, is_last=reach is None)
    last = cursor(runs[-1]["accepted_at"], runs[-1]["run_id"]) if runs else after
    return Page(runs, last, is_last=False)


async def _reach(pool: Pool, targets: Targets, after: str) -> tuple[datetime, str] | None:
    """Return time and id of the last run that a page examines, or None if it examines all."""
    values = list[Any]()
    meant = targets.conditions(values, after)
    query = f"SELECT accepted_at, run_id FROM hocket.run WHERE {meant} {LATEST_FIRST} 1"
    query += f" OFFSET {TRIED_RUNS - 1}"
    row = await pool.fetchrow(query, *values, timeout=QUERY_TIMEOUT_S)
    return None if row is None else (row["accepted_at"], row["run_id"])
