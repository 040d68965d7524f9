"""The steps of a run in columns, for a timeline of any length.

Times are milliseconds since the run was accepted. Of a long run only the nodes are sent, and a node's
steps when it is opened, so that the first answer is small whatever the run's size.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from hocket.admin.console.run.relations import costs_by_step
from hocket.admin.node_steps import COUNTS, counted
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import OF_THIS_RUN

PAGE = 2_000
"""Steps in one answer."""
MAX_CALLS = 10_000
"""The maximum number of model calls in one answer; the first ones are sent."""
MAX_NODES = 500
"""The maximum number of nodes in the first answer; a planner can emit more."""

NODES = f"""
SELECT path, min(type) AS type, min(role) AS role, count(*) AS all_steps, {COUNTS},
       min(ready_at) AS ready_at, min(started_at) AS started_at,
       CASE WHEN count(*) = count(finished_at) THEN max(finished_at) END AS finished_at
FROM hocket.step
WHERE run_id = $1
GROUP BY path
ORDER BY min(ready_at), path
LIMIT $2
"""
"""The nodes of a run with summaries of their steps."""

STEPS = """
SELECT key, path, type, role, parent, state, attempt, ready_at, dispatched_at, started_at,
       finished_at, deadline_at, slack_ms
FROM hocket.step
WHERE run_id = $1 AND ($2::text IS NULL OR path = $2) AND key > $3
ORDER BY key
LIMIT $4
"""
"""Steps of a run, or of one of its nodes, without their values."""

ATTEMPTS = """
SELECT key, attempt, outcome, started_at, dispatched_at, finished_at
FROM hocket.attempt
WHERE run_id = $1 AND key = ANY ($2::text[])
ORDER BY key, attempt
"""
"""The attempts of these steps that gave no result."""

CALLS = f"""
SELECT step, started_at, latency_ms
FROM hocket.usage u
WHERE tenant = $1 AND run_id = $2 AND step = ANY ($3::text[]) AND {OF_THIS_RUN}
ORDER BY started_at
LIMIT $4
"""
"""The model calls of these steps."""

COLUMNS = (
    "key",
    "node",
    "type",
    "role",
    "parent",
    "state",
    "attempt",
    "ready",
    "dispatched",
    "started",
    "finished",
    "deadline",
    "slack",
    "cost",
    "tokens",
)


async def nodes(pool: Pool, run: asyncpg.Record) -> list[dict[str, Any]]:
    """Return the nodes of a run, ordered by when their first step became ready. Of a mapped or looped
    node the items or rounds are counted; it has failed if its own step has. `allSteps` counts both."""
    began = run["accepted_at"]
    rows = await pool.fetch(NODES, run["run_id"], MAX_NODES, timeout=QUERY_TIMEOUT_S)
    return [_node(began, row) for row in rows]


def _node(began: datetime, row: asyncpg.Record) -> dict[str, Any]:
    own, items = counted(row)
    return {
        "node": row["path"],
        "type": row["type"],
        "role": row["role"],
        "steps": items.steps,
        "allSteps": row["all_steps"],
        "succeeded": items.succeeded,
        "failed": own.failed > 0,
        "leftOut": items.skipped + items.cancelled,
        "ready": _ms(began, row["ready_at"]),
        "started": _ms(began, row["started_at"]),
        "finished": _ms(began, row["finished_at"]),
    }


async def overview(pool: Pool, run: asyncpg.Record, *, costs: bool) -> dict[str, Any]:
    """Return the nodes of a run, and its steps if there are no more than PAGE."""
    found = await nodes(pool, run)
    is_short = len(found) < MAX_NODES and sum(node["allSteps"] for node in found) <= PAGE
    shown = await steps(pool, run, None, "", costs=costs) if is_short else {"columns": None}
    return shown | {"nodes": found}


async def steps(
    pool: Pool, run: asyncpg.Record, node: str | None, after: str, *, costs: bool
) -> dict[str, Any]:
    """Return a page of steps as columns, their failed attempts and model calls, and the key after which
    the next page begins; costs are included only if `costs`."""
    began, run_id = run["accepted_at"], run["run_id"]
    rows = await pool.fetch(STEPS, run_id, node, after, PAGE, timeout=QUERY_TIMEOUT_S)
    keys = [row["key"] for row in rows]
    values = (run["tenant"], run_id, keys, MAX_CALLS)
    calls = await pool.fetch(CALLS, *values, timeout=QUERY_TIMEOUT_S)
    roles = [(row["key"], row["role"]) for row in rows] if costs else []
    spent = await costs_by_step(pool, run["tenant"], run_id, roles) if roles else {}
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows:
        cost = spent.get(row["key"])
        money = (None, None) if cost is None else (float(cost.cost_usd), cost.tokens)
        for name, value in zip(COLUMNS, (*_step(began, row), *money), strict=True):
            columns[name].append(value)
    return {
        "columns": columns,
        "attempts": await _attempts(pool, run, rows),
        "calls": [_call(began, row) for row in calls],
        "next": keys[-1] if len(rows) == PAGE else None,
    }


async def _attempts(
    pool: Pool, run: asyncpg.Record, rows: Sequence[asyncpg.Record]
) -> list[tuple[Any, ...]]:
    """Return the attempts of these steps that gave no result, with start and end."""
    again = [row["key"] for row in rows if row["attempt"] > 1 or row["state"] == "failed"]
    if not again:
        return []
    found = await pool.fetch(ATTEMPTS, run["run_id"], again, timeout=QUERY_TIMEOUT_S)
    began = run["accepted_at"]
    return [
        (
            row["key"],
            row["attempt"],
            row["outcome"],
            _ms(began, row["started_at"] or row["dispatched_at"]),
            _ms(began, row["finished_at"]),
        )
        for row in found
    ]


def _step(began: datetime, row: asyncpg.Record) -> tuple[Any, ...]:
    return (
        row["key"],
        row["path"],
        row["type"],
        row["role"],
        row["parent"],
        row["state"],
        row["attempt"],
        _ms(began, row["ready_at"]),
        _ms(began, row["dispatched_at"]),
        _ms(began, row["started_at"]),
        _ms(began, row["finished_at"]),
        _ms(began, row["deadline_at"]),
        row["slack_ms"],
    )


def _call(began: datetime, row: asyncpg.Record) -> tuple[Any, ...]:
    start = _ms(began, row["started_at"])
    return row["step"], start, round((start or 0.0) + row["latency_ms"], 3)


def _ms(began: datetime, moment: datetime | None) -> float | None:
    return None if moment is None else round((moment - began).total_seconds() * 1_000, 3)
