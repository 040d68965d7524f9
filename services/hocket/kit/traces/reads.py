"""Reads the rows from which traces are built: runs with their sub-runs, steps, attempts and calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from hocket.kit.postgres.lookups import OF_THIS_RUN, OUTSIDE_USD

MAX_RUNS = 2_000
"""Runs of one read, including sub-runs."""
MAX_STEPS = 20_000
MAX_CALLS = 20_000
"""Requests to backends."""
TIMEOUT_S = 10.0

ENDED_RUNS = f"""
SELECT run_id, traceparent, parent IS NOT NULL AS is_sub_run, status,
       spent_usd + {OUTSIDE_USD} AS spent_usd,
       extract(epoch FROM finished_at - accepted_at)::float8 * 1000 AS duration_ms,
       finished_at > deadline_at AS is_late
FROM hocket.run
WHERE run_id = ANY ($1::text[]) AND finished_at IS NOT NULL
"""
FAILED_BELOW = """
WITH RECURSIVE below(run_id, root, tenant, status) AS (
    SELECT r.run_id, r.run_id, r.tenant, r.status
    FROM hocket.run r WHERE r.run_id = ANY ($1::text[])
    UNION ALL
    SELECT child.run_id, below.root, below.tenant, child.status
    FROM below
    CROSS JOIN LATERAL (
        SELECT r.run_id, r.tenant, r.status FROM hocket.run r
        WHERE r.parent ->> 'run_id' = below.run_id AND r.parent IS NOT NULL OFFSET 0) child
    WHERE child.tenant = below.tenant  -- outside, or another index is used without statistics
)
SELECT DISTINCT root FROM below WHERE run_id <> root AND status = ANY ($2::text[])
"""
"""Which of these runs have a run below them, at any depth, with one of these statuses."""
RUNS = f"""
WITH RECURSIVE below(run_id, root) AS (
    SELECT run_id, run_id FROM unnest($1::text[]) AS given(run_id)
    UNION ALL
    SELECT child.run_id, below.root
    FROM below
    CROSS JOIN LATERAL (
        SELECT r.tenant FROM hocket.run r WHERE r.run_id = below.run_id OFFSET 0) above
    CROSS JOIN LATERAL (
        SELECT r.run_id FROM hocket.run r
        WHERE r.parent ->> 'run_id' = below.run_id AND r.tenant = above.tenant
          AND r.parent IS NOT NULL OFFSET 0) child
)
SELECT run.run_id, below.root, run.tenant, run.pipeline, run.version, run.status, run.priority,
       run.accepted_at, run.deadline_at, run.finished_at, run.spent_usd + {OUTSIDE_USD} AS spent_usd,
       run.traceparent, run.labels, run.error ->> 'code' AS error_code,
       run.error ->> 'message' AS error_message, run.parent ->> 'run_id' AS parent_run,
       run.parent ->> 'step' AS parent_step
FROM below
CROSS JOIN LATERAL (SELECT * FROM hocket.run r WHERE r.run_id = below.run_id OFFSET 0) run
ORDER BY run.accepted_at, run.run_id
LIMIT $2
"""
"""Runs with those below them, read one by one as in `lookups.py`: Postgres expects so many that it would
read the whole table."""
STEPS = """
SELECT run_id, key, path, type, role, nullif(parent, '') AS parent, state, attempt, ready_at,
       queued_at, dispatched_at, started_at, finished_at, took_ms, worker,
       error ->> 'code' AS error_code, error ->> 'message' AS error_message,
       facts #>> '{source,kind}' AS source,
       CASE WHEN type = 'sql' AND jsonb_typeof(output -> 'elapsed_ms') = 'number'
            THEN output ->> 'elapsed_ms' END AS sql_ms,
       CASE WHEN type = 'sql' AND jsonb_typeof(output -> 'row_count') = 'number'
            THEN output ->> 'row_count' END AS sql_rows
FROM hocket.step
WHERE run_id = ANY ($1::text[])
ORDER BY ready_at, key
LIMIT $2
"""
ATTEMPTS = """
SELECT run_id, key, attempt, outcome, dispatched_at, started_at, finished_at, worker,
       error ->> 'code' AS error_code, error ->> 'message' AS error_message
FROM hocket.attempt
WHERE run_id = ANY ($1::text[]) AND outcome <> 'late'
ORDER BY finished_at, key, attempt
LIMIT $2
"""
CALLS = f"""
SELECT u.run_id, u.call_id, u.kind, u.step, u.attempt, u.model, u.backend, u.replica, u.status,
       u.error_code, u.input_tokens, u.output_tokens, u.cached_tokens, u.cache_write_tokens,
       u.cost_usd, u.estimated, u.started_at, u.latency_ms, u.experiment, u.arm,
       u.decision ->> 'provider' AS provider, u.decision ->> 'target' AS target,
       u.decision ->> 'operation' AS operation, (u.decision ->> 'queue_ms')::float8 AS queue_ms
FROM hocket.usage u
JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
WHERE u.run_id = ANY ($1::text[]) AND {OF_THIS_RUN}
ORDER BY u.started_at, u.call_id
LIMIT $2
"""

Rows = Sequence[asyncpg.Record]


@dataclass(frozen=True, slots=True)
class TraceRows:
    """The rows from which traces are built. `truncated` means that there were more than the limits."""

    runs: Rows
    steps: Rows
    attempts: Rows
    calls: Rows
    truncated: bool = False


async def read_rows(
    pool: "asyncpg.Pool[asyncpg.Record]", run_ids: Sequence[str], *, timeout_s: float = TIMEOUT_S
) -> TraceRows:
    """Return the rows of runs and of all their sub-runs."""
    runs = await pool.fetch(RUNS, list(run_ids), MAX_RUNS + 1, timeout=timeout_s)
    wanted = [row["run_id"] for row in runs[:MAX_RUNS]]
    steps = await pool.fetch(STEPS, wanted, MAX_STEPS + 1, timeout=timeout_s)
    attempts = await pool.fetch(ATTEMPTS, wanted, MAX_STEPS + 1, timeout=timeout_s)
    calls = await pool.fetch(CALLS, wanted, MAX_CALLS + 1, timeout=timeout_s)
    truncated = (
        len(runs) > MAX_RUNS or max(len(steps), len(attempts)) > MAX_STEPS or len(calls) > MAX_CALLS
    )
    return TraceRows(
        runs[:MAX_RUNS], steps[:MAX_STEPS], attempts[:MAX_STEPS], calls[:MAX_CALLS], truncated
    )
