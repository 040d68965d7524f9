"""Reads runs for the API: state, steps, cost.

Every query is bound to the caller's tenant; runs of other tenants do not exist for it.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg

from hocket.admin.pages import EPOCH, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool, rows_up_to
from hocket.admin.runs.critical_path import spelled_out
from hocket.kit.postgres import restorations
from hocket.kit.postgres.lookups import OF_THIS_RUN, OUTSIDE_USD
from hocket.schemas.errors import (
    ErrorClass,
    ErrorInfo,
    HocketError,
    RunNotRestored,
    RunUnknown,
)
from hocket.schemas.rest import (
    FailedAttempt,
    NodeCost,
    RunCost,
    RunDetail,
    RunList,
    RunResult,
    RunSummary,
    StepDetail,
    StepList,
    StepWaits,
    SubRunCost,
    ToolCost,
)

SHOWN_CALLS = 5
"""How many of the steps that a handler waits for are named in the text that says so."""
PARENT_FIELDS = ("run_id", "step", "attempt", "depth")
"""What is shown of the step that waits for a run."""
MAX_VALUE_BYTES = 4 * 1_048_576
"""The size of inputs, outputs and errors in one page of steps, those of failed attempts included; a page
ends with the step that exceeds it."""
STEPS_AT_ONCE = 100
VALUES_AT_ONCE = 8
"""Steps fetched per query; if with values."""

PAUSED = "CASE WHEN finished_at IS NULL THEN facts ->> 'paused_at_ms' END AS paused_at_ms"
"""Since when the deadline of an open run is paused."""
SUMMARY = f"""
SELECT run_id, tenant, pipeline, version, status, priority, accepted_at, deadline_at, finished_at,
       degraded, spent_usd + {OUTSIDE_USD} AS spent_usd, budget_usd, labels, {PAUSED}
FROM hocket.run
WHERE tenant = $1
"""
"""The runs of a tenant; conditions and order are appended."""

OVERDUE = "deadline_at < {now} AND NOT coalesce(facts ? 'paused_at_ms', false)"
"""Whether an open run is past its deadline, which moves only once it is no longer paused. Postgres
expects this form to be true of many runs, and so reads them from the latest on, without sorting all."""
MISSED = f"""(CASE WHEN finished_at IS NULL THEN {OVERDUE.format(now="now()")}
            ELSE status NOT IN ('succeeded', 'degraded', 'cancelled')
                 OR finished_at > deadline_at END)"""
"""Whether a run gave no result by its deadline, unless it was cancelled before."""

RARE_STATUSES = ("running", "degraded", "failed", "cancelled", "expired", "rejected")
"""Statuses with a partial index; a condition must contain them as literals for the index to be used."""
CONTAINS = "concat(input::text, ' ', output::text, ' ', error::text) ILIKE {}"
"""Whether a text occurs in a run's input, output or error."""
SEARCHED_RUNS = 2_000
"""The maximum number of runs whose content one search reads."""
TRIED_RUNS = 20_000
"""The maximum number of runs whose deadline or cost one search compares, because no index covers
these."""

LATEST_FIRST = "ORDER BY accepted_at DESC, run_id DESC LIMIT"

ONE_RUN = f"""
SELECT run_id, partition, tenant, pipeline, version, status, priority, accepted_at, deadline_at,
       finished_at, degraded, spent_usd + {OUTSIDE_USD} AS spent_usd, budget_usd, labels,
       {PAUSED}, idempotency_key,
       CASE WHEN $3 THEN input END AS input, CASE WHEN $3 THEN output END AS output,
       error, parent, critical_path,
       CASE WHEN $3 THEN facts -> 'origin' ELSE (facts -> 'origin') - 'step_input' END AS origin
FROM hocket.run
WHERE tenant = $1 AND run_id = $2
"""
"""One run with everything that is shown of it, with its values if requested: its input and output, and
the input that was given to a step."""

STEPS = """
SELECT key, path, type, role, parent, state, attempt, ready_at, dispatched_at, started_at,
       finished_at, deadline_at, slack_ms, worker, error, facts -> 'source' AS source,
       facts -> 'waits_for' AS waits_for, facts -> 'waits_until_ms' AS waits_until_ms,
       facts -> 'waits_for_steps' AS waits_for_steps,
       CASE WHEN $5 THEN input END AS input, CASE WHEN $5 THEN output END AS output,
       (SELECT sum(octet_length(a.error::text)) FROM hocket.attempt a
        WHERE a.run_id = step.run_id AND a.key = step.key) AS attempts_bytes
FROM hocket.step
WHERE run_id = $1 AND (ready_at, key) > ($2, $3)
ORDER BY ready_at, key
LIMIT $4
"""
"""A page of a run's steps in the order they became ready, with their values if requested, and with the
size of the errors of their failed attempts."""

ONE_STEP = """
SELECT key, path, type, role, parent, state, attempt, ready_at, dispatched_at, started_at,
       finished_at, deadline_at, slack_ms, worker, error, facts -> 'source' AS source,
       facts -> 'waits_for' AS waits_for, facts -> 'waits_until_ms' AS waits_until_ms,
       facts -> 'waits_for_steps' AS waits_for_steps
FROM hocket.step
WHERE run_id = $1 AND key = $2
"""
"""One step of a run with everything that is shown of it, but without its values."""

ATTEMPTS = """
SELECT key, attempt, outcome, error, started_at, finished_at, worker
FROM hocket.attempt
WHERE run_id = $1 AND key = ANY ($2::text[])
ORDER BY key, attempt, finished_at
"""
"""The attempts of these steps that did not yield their result."""

COST = f"""
SELECT node, model, backend, count(*) AS calls,
       count(*) FILTER (WHERE status <> 'ok') AS failed_calls,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cached_tokens)::bigint AS cached_tokens, sum(cost_usd) AS cost_usd,
       avg(latency_ms) AS mean_latency_ms
FROM hocket.usage u
WHERE run_id = $1 AND tenant = $2 AND {OF_THIS_RUN}
GROUP BY node, model, backend
ORDER BY min(started_at)
"""
"""The cost of a run's own calls by node, model and backend."""

BELOW = """
WITH RECURSIVE below(run_id, accepted_at, top) AS (
    SELECT child.run_id, child.accepted_at, child.run_id FROM (
        SELECT r.run_id, r.tenant, r.accepted_at, r.parent ->> 'step' AS step FROM hocket.run r
        WHERE r.parent ->> 'run_id' = $1 AND r.parent IS NOT NULL OFFSET 0) child
    WHERE child.tenant = $2 AND ($3::text[] IS NULL OR child.step IN (SELECT unnest($3::text[])))
    UNION ALL
    SELECT child.run_id, child.accepted_at, below.top FROM below CROSS JOIN LATERAL (
        SELECT r.run_id, r.tenant, r.accepted_at FROM hocket.run r
        WHERE r.parent ->> 'run_id' = below.run_id AND r.parent IS NOT NULL OFFSET 0) child
    WHERE child.tenant = $2
), cost AS (
    SELECT below.top, sum(called.calls) AS calls, sum(called.input_tokens) AS input_tokens,
           sum(called.output_tokens) AS output_tokens,
           sum(called.cost_usd + charged.cost_usd) AS cost_usd,
           sum(served.hits) AS cache_hits, sum(served.saved_usd) AS cache_saved_usd
    FROM below
    CROSS JOIN LATERAL (
        SELECT count(*) AS calls, coalesce(sum(input_tokens), 0) AS input_tokens,
               coalesce(sum(output_tokens), 0) AS output_tokens,
               coalesce(sum(cost_usd), 0) AS cost_usd
        FROM (SELECT * FROM hocket.usage WHERE run_id = below.run_id OFFSET 0) u
        WHERE u.tenant = $2 AND (u.started_at >= below.accepted_at - interval '1 day' OR EXISTS (
            SELECT FROM hocket.stray_call s
            WHERE s.call_id = u.call_id AND s.started_at = u.started_at)) OFFSET 0) called
    CROSS JOIN LATERAL (
        SELECT coalesce(sum((facts ->> 'charged_usd')::numeric), 0) AS cost_usd
        FROM hocket.step
        WHERE run_id = below.run_id AND facts ? 'charged_usd' OFFSET 0) charged
    CROSS JOIN LATERAL (
        SELECT count(*) AS hits,
               coalesce(sum((facts #>> '{source,saved_usd}')::numeric), 0) AS saved_usd
        FROM hocket.step
        WHERE run_id = below.run_id AND facts ? 'source' AND facts #>> '{source,kind}' = 'cache'
        OFFSET 0) served
    GROUP BY below.top
)
"""
"""What each sub-run of a run cost (`cost.top` is its id) with all below it; only those that some steps
started, if these are given. Rows are read one run at a time, as in `lookups.py`, and the tenant is
compared afterwards: Postgres would read all calls and runs of the tenant for each run, as long as it
does not know how many there are. Which calls are of the run that has its run id now is decided as by
OF_THIS_RUN."""

SUB_RUNS = f"""{BELOW}
SELECT coalesce(step.path, sub.step) AS node, sub.pipeline, count(*) AS runs,
       sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
       sum(output_tokens)::bigint AS output_tokens, sum(cost_usd) AS cost_usd,
       sum(cache_hits)::bigint AS cache_hits, sum(cache_saved_usd) AS cache_saved_usd
FROM cost
CROSS JOIN LATERAL (
    SELECT r.pipeline, r.parent ->> 'step' AS step, r.accepted_at FROM hocket.run r
    WHERE r.run_id = cost.top OFFSET 0) sub
LEFT JOIN LATERAL (
    SELECT s.path FROM hocket.step s WHERE s.run_id = $1 AND s.key = sub.step OFFSET 0) step ON true
GROUP BY 1, 2
ORDER BY min(sub.accepted_at), 1, 2
"""
"""The cost of a run's sub-runs, and of all below them, by the node that started them and by pipeline."""

OF_SUB_RUN_STEPS = f"""{BELOW}
SELECT sub.step, sum(calls)::bigint AS calls, sum(cost_usd) AS cost_usd,
       sum(input_tokens + output_tokens)::bigint AS tokens
FROM cost
CROSS JOIN LATERAL (
    SELECT r.parent ->> 'step' AS step FROM hocket.run r WHERE r.run_id = cost.top OFFSET 0) sub
GROUP BY sub.step
"""
"""The cost of the sub-runs that these steps of a run started, and of all below them, by step."""

TOOLS = """
SELECT path AS node, type, count(*) AS steps, coalesce(sum(took_ms), 0) / 1000 AS seconds,
       sum((facts ->> 'charged_usd')::numeric) AS cost_usd
FROM hocket.step
WHERE run_id = $1 AND facts ? 'charged_usd'
GROUP BY path, type
ORDER BY min(started_at)
"""
"""The charges of a run's own steps, by node."""

SAVED = """
SELECT count(*) AS hits, coalesce(sum((facts #>> '{source,saved_usd}')::numeric), 0) AS saved_usd
FROM hocket.step
WHERE run_id = $1 AND facts ? 'source' AND facts #>> '{source,kind}' = 'cache'
"""
"""What the cache saved a run's own steps."""

StoredValues = dict[str, tuple[str | None, str | None]]
"""The input and the output of steps, as stored: JSON texts."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows."""

    pipeline: str | None = None
    version: int | None = None
    """A version of the pipeline. Indexes contain it, but not as a search key: `within_reach` bounds the
    search."""
    status: str | None = None
    since: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a run must all have."""
    until: datetime | None = None
    missed: bool = False
    """Only runs that gave no result by their deadline, or are past it; not those that were cancelled
    before."""
    min_cost_usd: Decimal | None = None
    error_code: str | None = None
    contains: str | None = None
    """Text in the input, the output or the error. No index covers it, nor `missed` and `min_cost_usd`:
    `within_reach` bounds the search."""
    run_ids: tuple[str, ...] | None = None
    back_to: tuple[datetime, str] | None = None
    """Time and id of the earliest run to examine."""

    @property
    def is_search(self) -> bool:
        """Whether each run has to be examined."""
        return bool(self.contains or self.missed or self.min_cost_usd is not None or self.version)

    def asks_only_for(self, *names: str) -> bool:
        """Tell whether no fields other than these are set."""
        return self == RunFilter(**{name: getattr(self, name) for name in names})


def conditions_of(wanted: RunFilter, values: list[Any], after: str | None = None) -> str:
    """Return a filter as SQL conditions on `hocket.run`; their parameters are appended to `values`."""
    text = ""
    conditions = _conditions(wanted)
    if after is not None:
        conditions.append(("(accepted_at, run_id) < ({}, {})", parse_cursor(after)))
    for condition, given in conditions:
        places = [f"${len(values) + 1 + i}" for i in range(len(given))]
        text += f"  AND {condition.format(*places)}\n"
        values.extend(given)
    return text


def _conditions(wanted: RunFilter) -> list[tuple[str, tuple[Any, ...]]]:
    return [
        *_kind_conditions(wanted),
        *_time_conditions(wanted),
        *_content_conditions(wanted),
    ]


def _kind_conditions(wanted: RunFilter) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the conditions on identity: pipeline, status, labels, ids."""
    if wanted.pipeline is not None:
        yield "pipeline = {}", (wanted.pipeline,)
    if wanted.version is not None:
        yield "version = {}", (wanted.version,)
    if wanted.status is not None:
        yield _status(wanted.status)
    if wanted.labels:
        yield "labels @> {}::jsonb", (json.dumps(dict(wanted.labels)),)
    if wanted.run_ids is not None:
        yield "run_id = ANY ({}::text[])", (list(wanted.run_ids),)


def _time_conditions(wanted: RunFilter) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the conditions on the time of acceptance and on the deadline."""
    if wanted.since is not None:
        yield "accepted_at >= {}", (wanted.since,)
    if wanted.until is not None:
        yield "accepted_at < {}", (wanted.until,)
    if wanted.back_to is not None:
        yield "(accepted_at, run_id) >= ({}, {})", wanted.back_to
    if wanted.missed:
        yield MISSED, ()


def _content_conditions(wanted: RunFilter) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the conditions on cost and content."""
    if wanted.min_cost_usd is not None:
        yield f"spent_usd + {OUTSIDE_USD} >= {{}}", (wanted.min_cost_usd,)
    if wanted.error_code is not None:
        yield "error IS NOT NULL AND error ->> 'code' = {}", (wanted.error_code,)
    if wanted.contains is not None:
        yield CONTAINS, (_pattern(wanted.contains),)


def _status(status: str) -> tuple[str, tuple[Any, ...]]:
    return (f"status = '{status}'", ()) if status in RARE_STATUSES else ("status = {}", (status,))


async def within_reach(pool: Pool, tenant: str, wanted: RunFilter, after: str | None) -> RunFilter:
    """Return a filter bounded to the first runs: the content of at most SEARCHED_RUNS is read, and the
    deadline, cost or version of at most TRIED_RUNS is compared."""
    if not wanted.is_search:
        return wanted
    reach = SEARCHED_RUNS if wanted.contains is not None else TRIED_RUNS
    values: list[Any] = [tenant]
    plain = replace(wanted, contains=None, missed=False, min_cost_usd=None, version=None)
    query = "SELECT accepted_at, run_id FROM hocket.run WHERE tenant = $1\n"
    query += conditions_of(plain, values, after)
    query += f"{LATEST_FIRST} 1 OFFSET {reach - 1}"
    row = await pool.fetchrow(query, *values, timeout=QUERY_TIMEOUT_S)
    return wanted if row is None else replace(wanted, back_to=(row["accepted_at"], row["run_id"]))


async def list_runs(
    pool: Pool, tenant: str, wanted: RunFilter, after: str | None, limit: int
) -> RunList:
    """Return a page of runs, the latest first."""
    back_to = wanted.back_to
    if _is_of_version(wanted):
        wanted = await _found_by_version(pool, tenant, wanted, after, limit)
    values: list[Any] = [tenant]
    query = SUMMARY + conditions_of(wanted, values, after)
    query += f"{LATEST_FIRST} ${len(values) + 1}"
    rows = await pool.fetch(query, *values, limit + 1, timeout=QUERY_TIMEOUT_S)
    page = rows[:limit]
    more = cursor(page[-1]["accepted_at"], page[-1]["run_id"]) if len(rows) > limit else None
    if more is None and back_to is not None:
        more = cursor(*back_to)
    return RunList(runs=tuple(summary(row) for row in page), next=more)


def _is_of_version(wanted: RunFilter) -> bool:
    """Tell whether a filter asks only for a version of a pipeline within a time range."""
    if None in (wanted.pipeline, wanted.version):
        return False
    return wanted.asks_only_for("pipeline", "version", "since", "until", "back_to")


async def _found_by_version(
    pool: Pool, tenant: str, wanted: RunFilter, after: str | None, limit: int
) -> RunFilter:
    """Return a filter that names the ids of the runs matched by a filter by version: an index covers it
    entirely, so that no other rows are read."""
    values: list[Any] = [tenant]
    query = "SELECT run_id FROM hocket.run WHERE tenant = $1\n"
    query += conditions_of(wanted, values, after)
    query += f"{LATEST_FIRST} ${len(values) + 1}"
    rows = await pool.fetch(query, *values, limit + 1, timeout=QUERY_TIMEOUT_S)
    return RunFilter(run_ids=tuple(row["run_id"] for row in rows))


async def find_run(
    pool: Pool, tenant: str, run_id: str, *, values: bool = True
) -> asyncpg.Record | None:
    """Return the row of a run, or None. Without `values`, its input and output are not read, nor the
    input that was given to a step."""
    return await pool.fetchrow(ONE_RUN, tenant, run_id, values, timeout=QUERY_TIMEOUT_S)


async def run_row(pool: Pool, tenant: str, run_id: str, *, values: bool = True) -> asyncpg.Record:
    """Return the same as `find_run`, or raise RunUnknown."""
    row = await find_run(pool, tenant, run_id, values=values)
    if row is None:
        raise await unknown_run(pool, run_id)
    return row


async def unknown_run(pool: Pool, run_id: str) -> RunUnknown:
    """Return the error for a run that does not exist: it may be newer than the backup from which the
    database was restored."""
    restored = await restorations.last(pool, timeout_s=QUERY_TIMEOUT_S)
    if restored is None:
        return RunUnknown(run_id=run_id)
    return RunNotRestored(
        run_id=run_id, restored_at=restored.restored_at, backup_at=restored.backup_at
    )


def summary(row: asyncpg.Record) -> RunSummary:
    """Return a run's row as shown in lists."""
    return RunSummary(**_summary(row))


def detail(row: asyncpg.Record) -> RunDetail:
    """Return a run's row with everything that callers may see but its input and output: these can be
    large, and are sent as they are stored (`content.run_json`)."""
    return RunDetail(
        **_summary(row),
        idempotency_key=row["idempotency_key"],
        input={},
        error=_error(row["error"]),
        parent=_parent(_json(row["parent"])),
        origin=_json(row["origin"]),
        critical_path=spelled_out(_json(row["critical_path"])),
    )


def _parent(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the step that waits for a run, without the capability to answer for it."""
    return None if stored is None else {name: stored.get(name) for name in PARENT_FIELDS}


def result(row: asyncpg.Record, *, output: bool = True) -> RunResult:
    """Return the result of an ended run, with its output if `output`."""
    assert row["finished_at"] is not None, "only an ended run has a result"
    return RunResult(
        run_id=row["run_id"],
        pipeline=row["pipeline"],
        version=row["version"],
        status=row["status"],
        output=_json(row["output"]) if output else None,
        error=_error(row["error"]),
        accepted_at=row["accepted_at"],
        finished_at=row["finished_at"],
        deadline_at=row["deadline_at"],
        duration_ms=milliseconds(row["accepted_at"], row["finished_at"]),
        met_deadline=met_deadline(row["status"], row["finished_at"], row["deadline_at"]),
        spent_usd=row["spent_usd"],
    )


async def list_steps(
    pool: Pool, run_id: str, *, after: str | None, limit: int, values: bool
) -> tuple[StepList, StoredValues]:
    """Return a page of a run's steps, which ends with the step that exceeds MAX_VALUE_BYTES, and their
    values if `values`."""
    async with (
        pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(readonly=True),
    ):
        return await page_of_steps(connection, run_id, after=after, limit=limit, values=values)


async def page_of_steps(
    connection: asyncpg.Connection, run_id: str, *, after: str | None, limit: int, values: bool
) -> tuple[StepList, StoredValues]:
    """Return the same as `list_steps`, over a connection with a transaction."""
    start = parse_cursor(after) if after is not None else (EPOCH, "")
    async with asyncio.timeout(QUERY_TIMEOUT_S):
        rows = connection.cursor(
            STEPS,
            run_id,
            *start,
            limit + 1,
            values,
            prefetch=VALUES_AT_ONCE if values else STEPS_AT_ONCE,
        )
        page, there_is_more = await rows_up_to(
            rows, limit=limit, limit_bytes=MAX_VALUE_BYTES, size_of=_size
        )
    failed = await connection.fetch(
        ATTEMPTS, run_id, [row["key"] for row in page], timeout=QUERY_TIMEOUT_S
    )
    by_step: dict[str, list[FailedAttempt]] = {}
    for row in failed:
        by_step.setdefault(row["key"], []).append(_attempt(row))
    steps = tuple(_step(row, tuple(by_step.get(row["key"], ()))) for row in page)
    more = cursor(page[-1]["ready_at"], page[-1]["key"]) if there_is_more else None
    stored = {row["key"]: (row["input"], row["output"]) for row in page} if values else {}
    return StepList(run_id=run_id, steps=steps, next=more), stored


class StepUnknown(HocketError):
    """There is no step `{step}` in run {run_id}. `hocket runs show {run_id}` and `GET
    /v1/runs/{run_id}/steps` show its steps."""

    code = "step_unknown"
    error_class = ErrorClass.INVALID


async def one_step(pool: Pool, run_id: str, step: str) -> StepDetail:
    """Return a step of a run with its failed attempts, or raise StepUnknown."""
    row = await pool.fetchrow(ONE_STEP, run_id, step, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise StepUnknown(run_id=run_id, step=step)
    failed = await pool.fetch(ATTEMPTS, run_id, [step], timeout=QUERY_TIMEOUT_S)
    return _step(row, tuple(_attempt(attempt) for attempt in failed))


def _size(row: asyncpg.Record) -> int:
    """Return the size of a step's values and errors, those of failed attempts included."""
    own = sum(len(row[name] or "") for name in ("input", "output", "error"))
    return own + int(row["attempts_bytes"] or 0)


async def run_cost(pool: Pool, tenant: str, run_id: str) -> RunCost:
    """Return what a run cost so far, with its sub-runs."""
    rows = await pool.fetch(COST, run_id, tenant, timeout=QUERY_TIMEOUT_S)
    charged = await pool.fetch(TOOLS, run_id, timeout=QUERY_TIMEOUT_S)
    saved = await pool.fetchrow(SAVED, run_id, timeout=QUERY_TIMEOUT_S)
    below = await pool.fetch(SUB_RUNS, run_id, tenant, None, timeout=QUERY_TIMEOUT_S)
    tools = tuple(ToolCost(**dict(row)) for row in charged)
    nodes = tuple(NodeCost(**dict(row)) for row in rows)
    sub_runs = tuple(
        SubRunCost(**{name: row[name] for name in SubRunCost.model_fields}) for row in below
    )
    called: tuple[NodeCost | SubRunCost, ...] = (*nodes, *sub_runs)
    parts: tuple[NodeCost | SubRunCost | ToolCost, ...] = (*called, *tools)
    return RunCost(
        run_id=run_id,
        calls=sum(part.calls for part in called),
        input_tokens=sum(part.input_tokens for part in called),
        output_tokens=sum(part.output_tokens for part in called),
        cost_usd=sum((part.cost_usd for part in parts), Decimal(0)),
        cache_hits=saved["hits"] + sum(row["cache_hits"] for row in below),
        cache_saved_usd=sum((row["cache_saved_usd"] for row in below), saved["saved_usd"]),
        nodes=nodes,
        tools=tools,
        sub_runs=sub_runs,
    )


def _pattern(text: str) -> str:
    """Return the LIKE pattern for a text as it occurs in JSON."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    escaped = written.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def met_deadline(status: str, finished_at: datetime, deadline_at: datetime) -> bool:
    """Tell whether an ended run gave a result by its deadline; a failed or a cancelled run did not."""
    return status in ("succeeded", "degraded") and finished_at <= deadline_at


def milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    """Return the time between two moments in milliseconds, or None if one is missing."""
    if start is None or end is None:
        return None
    return round((end - start).total_seconds() * 1000, 3)


def _summary(row: asyncpg.Record) -> dict[str, Any]:
    ended, paused_at_ms = row["finished_at"], row["paused_at_ms"]
    return {
        "run_id": row["run_id"],
        "tenant": row["tenant"],
        "pipeline": row["pipeline"],
        "version": row["version"],
        "status": row["status"],
        "priority": row["priority"],
        "accepted_at": row["accepted_at"],
        "deadline_at": row["deadline_at"],
        "deadline_paused_at": None if paused_at_ms is None else _of_ms(float(paused_at_ms)),
        "finished_at": ended,
        "duration_ms": milliseconds(row["accepted_at"], ended),
        "met_deadline": None
        if ended is None
        else met_deadline(row["status"], ended, row["deadline_at"]),
        "degraded": row["degraded"],
        "spent_usd": row["spent_usd"],
        "budget_usd": row["budget_usd"],
        "labels": _json(row["labels"]) or {},
    }


def _step(row: asyncpg.Record, attempts: tuple[FailedAttempt, ...]) -> StepDetail:
    return StepDetail(
        step=row["key"],
        node=row["path"],
        type=row["type"],
        role=row["role"],
        parent=row["parent"],
        state=row["state"],
        attempt=row["attempt"],
        ready_at=row["ready_at"],
        dispatched_at=row["dispatched_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        deadline_at=row["deadline_at"],
        slack_ms=row["slack_ms"],
        duration_ms=milliseconds(row["started_at"], row["finished_at"]),
        worker=row["worker"],
        error=_error(row["error"]),
        source=_json(row["source"]),
        attempts=attempts,
        waits_for=_waits(row) if row["waits_for"] is not None else None,
    )


def _waits(row: asyncpg.Record) -> StepWaits:
    """Return what a step is waiting for outside the platform."""
    names, until_ms = tuple(_json(row["waits_for"]) or ()), _json(row["waits_until_ms"])
    steps = tuple(_json(row["waits_for_steps"]) or ())
    until = None if until_ms is None else _of_ms(until_ms)
    told = "for the signal " + " or ".join(f"`{name}`" for name in names)
    if row["type"] == "approval":  # its node's name answers it too
        told = f"for an answer to the approval `{row['key']}`"
    parts = ([told] if names else []) + (
        [f"until {until:%Y-%m-%d %H:%M:%S} UTC"] if until is not None else []
    )
    outside = f"It waits {', at most '.join(parts)}." if parts else ""
    inside = (
        f"It waits for what its handler called: {', '.join(steps[:SHOWN_CALLS])}." if steps else ""
    )
    reason = " ".join(filter(None, (inside, outside))) or "It waits."
    return StepWaits(type=row["type"], reason=reason, signals=names, until=until, steps=steps)


def _attempt(row: asyncpg.Record) -> FailedAttempt:
    return FailedAttempt(
        attempt=row["attempt"],
        outcome=row["outcome"],
        error=_error(row["error"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        worker=row["worker"],
    )


def _of_ms(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _error(text: str | None) -> ErrorInfo | None:
    return None if text is None else ErrorInfo.model_validate_json(text)
