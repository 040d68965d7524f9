"""Reads costs from the report views."""

from datetime import date, datetime
from typing import Any

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.rest import (
    CacheSaving,
    CacheSavings,
    KindCost,
    KindCosts,
    NodeCosts,
    PipelineCosts,
    PipelineDayCost,
    PipelineNodeCost,
    RunCostRow,
    RunCosts,
)

MAX_ROWS = 5_000
"""Rows in one answer; `truncated` says that there are more."""

BY_PIPELINE_DAY = """
SELECT pipeline, day, calls, runs, input_tokens::bigint, output_tokens::bigint,
       cached_tokens::bigint, cost_usd
FROM report.cost_by_pipeline_day
WHERE tenant = $1 AND day BETWEEN $2 AND $3 AND ($4::text IS NULL OR pipeline = $4)
ORDER BY day DESC, cost_usd DESC, pipeline
LIMIT $5
"""
"""What each pipeline cost on each day."""

BY_NODE = """
SELECT pipeline, version, node, model, backend,
       CASE WHEN model IS NULL THEN 0 ELSE calls END AS calls, failed_calls, input_tokens::bigint,
       output_tokens::bigint, cost_usd, mean_latency_ms
FROM report.cost_by_node
WHERE tenant = $1 AND ($2::text IS NULL OR pipeline = $2) AND ($3::integer IS NULL OR version = $3)
ORDER BY cost_usd DESC, calls DESC, pipeline, version, node
LIMIT $4
"""
"""What each node of each pipeline version cost."""

BY_RUN = """
SELECT run_id, pipeline, version, status, accepted_at, duration_ms::double precision, met_deadline,
       calls, input_tokens::bigint, output_tokens::bigint, cost_usd
FROM report.cost_by_run
WHERE tenant = $1 AND accepted_at >= $2 AND ($3::text IS NULL OR pipeline = $3)
ORDER BY cost_usd DESC, accepted_at DESC
LIMIT $4
"""
"""What each run cost, most expensive first."""


BY_KIND = """
SELECT pipeline, version, node, day, kind, CASE WHEN kind = 'tool' THEN 0 ELSE calls END AS calls,
       runs, input_tokens::bigint, output_tokens::bigint, cost_usd
FROM report.cost_by_kind
WHERE tenant = $1 AND day BETWEEN $2 AND $3 AND ($4::text IS NULL OR pipeline = $4)
ORDER BY day DESC, cost_usd DESC, calls DESC, pipeline, version, node, kind
LIMIT $5
"""
"""What each node cost on each day, by kind of call and for tools, which make no calls of models."""

SAVED_BY_CACHE = """
SELECT pipeline, version, node, day, hits, runs, saved_usd
FROM report.cache_savings
WHERE tenant = $1 AND day BETWEEN $2 AND $3 AND ($4::text IS NULL OR pipeline = $4)
ORDER BY day DESC, saved_usd DESC, pipeline, version, node
LIMIT $5
"""
"""What the step cache saved each node on each day."""


async def by_pipeline(
    pool: Pool, tenant: str, first: date, last: date, pipeline: str | None
) -> PipelineCosts:
    """Return cost by pipeline and day, from the first to the last day, both included."""
    rows, more = await _rows(pool, BY_PIPELINE_DAY, tenant, first, last, pipeline)
    return PipelineCosts(costs=tuple(PipelineDayCost(**row) for row in rows), truncated=more)


async def by_node(pool: Pool, tenant: str, pipeline: str | None, version: int | None) -> NodeCosts:
    """Return cost by node, model and backend over all time."""
    rows, more = await _rows(pool, BY_NODE, tenant, pipeline, version)
    return NodeCosts(costs=tuple(PipelineNodeCost(**row) for row in rows), truncated=more)


async def by_kind(
    pool: Pool, tenant: str, first: date, last: date, pipeline: str | None
) -> KindCosts:
    """Return cost by node, day and kind, from the first to the last day, both included."""
    rows, more = await _rows(pool, BY_KIND, tenant, first, last, pipeline)
    return KindCosts(costs=tuple(KindCost(**row) for row in rows), truncated=more)


async def saved_by_cache(
    pool: Pool, tenant: str, first: date, last: date, pipeline: str | None
) -> CacheSavings:
    """Return what the step cache saved, from the first to the last day, both included."""
    rows, more = await _rows(pool, SAVED_BY_CACHE, tenant, first, last, pipeline)
    return CacheSavings(savings=tuple(CacheSaving(**row) for row in rows), truncated=more)


async def by_run(
    pool: Pool, tenant: str, since: datetime, pipeline: str | None, limit: int
) -> RunCosts:
    """Return cost by run since a moment, most expensive first."""
    rows, more = await _rows(pool, BY_RUN, tenant, since, pipeline, limit=limit)
    return RunCosts(costs=tuple(RunCostRow(**row) for row in rows), truncated=more)


async def _rows(
    pool: Pool, query: str, *arguments: Any, limit: int = MAX_ROWS
) -> tuple[list[dict[str, Any]], bool]:
    """Return at most `limit` rows of a query whose last argument is its LIMIT, and whether there are
    more."""
    rows = await pool.fetch(query, *arguments, limit + 1, timeout=QUERY_TIMEOUT_S)
    return [dict(row) for row in rows[:limit]], len(rows) > limit
