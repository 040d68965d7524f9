"""Reads from Postgres which limits currently hold runs back, and the place of a run in the queues."""

import json
from secrets import token_hex
from typing import Any

import asyncpg

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.schemas.administration.flow import FlowQueue, FlowQueueList, FlowRun, FlowRunList

MAX_OFFSET = 100_000
"""How far one may page. Pages are by offset: queues change too quickly for a cursor to stay valid."""

_OWN_SECRET = token_hex(16)
"""Takes the place of the platform's secret if this process has none."""
_NAMED = "{} || ' ' || tenant || ' ' || pipeline || ' ' || kind || ' ' || key"
_QUEUE = f"left(encode(sha256(convert_to({_NAMED}, 'UTF8')), 'hex'), 24)"
"""A queue's id. It does not reveal its key, which is part of a run's input, not even to those who guess
it: for that, the id also depends on a secret."""
_QUEUES = f"""
SELECT {_QUEUE.format("$5::text")} AS queue, p.pipeline, p.kind, p.key,
       count(*) FILTER (WHERE p.state = 'passed') AS held,
       count(*) FILTER (WHERE p.state = 'waiting') AS waiting,
       min(p.accepted_at) FILTER (WHERE p.state = 'waiting') AS waiting_since,
       (array_agg(p.rule ORDER BY p.accepted_at DESC, p.run_id DESC))[1] AS rule,
       (SELECT count(*) FROM hocket.flow_start s
        WHERE s.tenant = p.tenant AND s.pipeline = p.pipeline AND s.kind = p.kind AND s.key = p.key
          AND s.until > now()) AS started
FROM hocket.flow_place p
WHERE p.tenant = $1 AND p.state IN ('waiting', 'passed') AND ($2::text IS NULL OR p.pipeline = $2)
GROUP BY p.tenant, p.pipeline, p.kind, p.key
ORDER BY waiting DESC, p.pipeline, p.kind, p.key OFFSET $3 LIMIT $4
"""
_RUNS = f"""
SELECT *, CASE WHEN state = 'waiting' THEN place END AS position FROM (
    SELECT {_QUEUE.format("$7::text")} AS queue, p.run_id, p.pipeline, p.kind, p.key, p.state,
           p.accepted_at, p.changed_at, p.replaced_by,
           row_number() OVER (PARTITION BY p.pipeline, p.kind, p.key, p.state
                              ORDER BY p.accepted_at, p.run_id) AS place
    FROM hocket.flow_place p
    WHERE p.tenant = $1 AND p.state <> 'ahead' AND ($2::text IS NULL OR p.pipeline = $2)
) AS placed
WHERE ($3::text IS NULL OR queue = $3) AND ($4::text IS NULL OR run_id = $4)
ORDER BY queue, state = 'waiting', accepted_at, run_id OFFSET $5 LIMIT $6
"""
_WAITS = f"""
SELECT {_QUEUE.format("$3::text")} AS queue, p.run_id, p.pipeline, p.kind, p.key, p.state,
       p.accepted_at, p.changed_at, p.replaced_by,
       (SELECT count(*) FROM hocket.flow_place o
        WHERE o.tenant = p.tenant AND o.pipeline = p.pipeline AND o.kind = p.kind AND o.key = p.key
          AND o.state = 'waiting' AND (o.accepted_at, o.run_id) <= (p.accepted_at, p.run_id)) AS position
FROM hocket.flow_place p
WHERE p.tenant = $1 AND p.run_id = $2 AND p.state = 'waiting'
ORDER BY p.gate
"""
_STATES = {"passed": "held"}


async def queues(
    context: Context, tenant: str, pipeline: str | None, *, skip: int, limit: int, content: bool
) -> FlowQueueList:
    """Return a page of a tenant's queues; keys are included only for callers who may see content."""
    values = (tenant, pipeline, skip, limit + 1, _secret_of(context))
    async with context.long_reads.place(tenant):
        rows = await context.pool.fetch(_QUEUES, *values, timeout=QUERY_TIMEOUT_S)
    found = tuple(
        FlowQueue(**{**row, "rule": json.loads(row["rule"]), "key": _key(row, content=content)})
        for row in rows[:limit]
    )
    return FlowQueueList(queues=found, next=_next(rows, skip, limit))


async def runs(
    context: Context,
    tenant: str,
    *,
    pipeline: str | None,
    queue: str | None,
    run_id: str | None,
    skip: int,
    limit: int,
    content: bool,
) -> FlowRunList:
    """Return a page of the runs that wait at limits or hold places."""
    values = (tenant, pipeline, queue, run_id, skip, limit + 1, _secret_of(context))
    async with context.long_reads.place(tenant):
        rows = await context.pool.fetch(_RUNS, *values, timeout=QUERY_TIMEOUT_S)
    found = tuple(_shown(row, content=content) for row in rows[:limit])
    return FlowRunList(runs=found, next=_next(rows, skip, limit))


async def waits_of(
    context: Context, tenant: str, run_id: str, *, content: bool
) -> tuple[FlowRun, ...]:
    """Return the limits at which a run waits."""
    values = (tenant, run_id, _secret_of(context))
    rows = await context.pool.fetch(_WAITS, *values, timeout=QUERY_TIMEOUT_S)
    return tuple(_shown(row, content=content) for row in rows)


def _secret_of(context: Context) -> str:
    seals = context.capabilities
    return _OWN_SECRET if seals is None else seals.seal("flow queues", b"")


def _shown(row: asyncpg.Record, *, content: bool) -> FlowRun:
    return FlowRun(
        queue=row["queue"],
        run_id=row["run_id"],
        pipeline=row["pipeline"],
        kind=row["kind"],
        key=_key(row, content=content),
        state=_STATES.get(row["state"], row["state"]),
        position=row["position"],
        accepted_at=row["accepted_at"],
        since=row["changed_at"],
        replaced_by=row["replaced_by"],
    )


def _key(row: asyncpg.Record, *, content: bool) -> str | None:
    key: str = row["key"]
    return key if content or not key else None


def _next(rows: list[Any], skip: int, limit: int) -> str | None:
    more = len(rows) > limit and skip + limit <= MAX_OFFSET
    return str(skip + limit) if more else None
