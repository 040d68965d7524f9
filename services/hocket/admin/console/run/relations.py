"""What is shown beside a run: the limits at which it waits, the runs it started, those that repeat it,
what it would have cost elsewhere, and which of its calls are stored."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.context import Context
from hocket.admin.flow.reads import waits_of
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.requests.identity import Caller
from hocket.admin.runs.reads import OF_SUB_RUN_STEPS
from hocket.kit.postgres.lookups import KEPT_OF_THIS_RUN, OF_THIS_RUN
from hocket.schemas.administration.flow import FlowRun
from hocket.schemas.ids import call_of
from hocket.schemas.rest import RunDetail, StepDetail

SUB_RUN = "subrun"
"""The role of a step that starts a run and makes no calls itself."""
MAX_RELATED = 20
MAX_OTHERS = 40

RELATED = """
(SELECT 'sub-run' AS relation, run_id, pipeline, status, accepted_at FROM hocket.run
 WHERE parent IS NOT NULL AND parent ->> 'run_id' = $2 AND tenant = $1
 ORDER BY accepted_at, run_id LIMIT $3)
UNION ALL
(SELECT 'repeat', run_id, pipeline, status, accepted_at FROM hocket.run
 WHERE facts ? 'origin' AND facts #>> '{origin,run_id}' = $2 AND tenant = $1
 ORDER BY accepted_at, run_id LIMIT $3)
"""
"""The runs that a run started, and those that repeat it."""

ELSEWHERE = f"""
WITH calls AS (
    SELECT model, backend, count(*) AS calls, sum(cost_usd) AS cost_usd,
           sum(input_tokens - cached_tokens - cache_write_tokens) AS fresh, sum(cached_tokens) AS cached,
           sum(cache_write_tokens) AS written, sum(output_tokens) AS output
    FROM report.usage u
    WHERE tenant = $1 AND run_id = $2 AND {OF_THIS_RUN} AND (input_tokens > 0 OR output_tokens > 0)
    GROUP BY model, backend
), latest AS (
    SELECT DISTINCT ON (model, backend) * FROM report.prices WHERE tenant = $1
    ORDER BY model, backend, in_force_at DESC
), others AS (
    -- models without calls here are told by their price: those that make vectors have none for output
    SELECT p.*, coalesce(c.output > 0, CASE WHEN p.output_usd_per_mtok > 0 THEN true
                                            WHEN p.input_usd_per_mtok > 0 THEN false END) AS answers
    FROM latest p LEFT JOIN calls c ON (c.model, c.backend) = (p.model, p.backend)
)
SELECT c.model, c.backend, c.calls, c.cost_usd, p.model AS other_model, p.backend AS other_backend,
       c.calls * p.request_usd + (c.fresh * p.input_usd_per_mtok
           + c.cached * coalesce(p.cached_usd_per_mtok, p.input_usd_per_mtok)
           + c.written * coalesce(p.cache_write_usd_per_mtok, p.input_usd_per_mtok)
           + c.output * p.output_usd_per_mtok) / 1000000 AS other_cost_usd
FROM calls c
JOIN others p ON p.backend <> c.backend AND p.answers = (c.output > 0)
ORDER BY c.cost_usd DESC, c.model, c.backend, other_cost_usd, other_model, other_backend
LIMIT $3
"""
"""What a run's calls would have cost elsewhere; `report.model_swap` has the same for a pipeline's last
days."""

STEP_COSTS = f"""
SELECT step, count(*) AS calls, sum(cost_usd) AS cost_usd,
       sum(input_tokens + output_tokens)::bigint AS tokens
FROM hocket.usage u
WHERE tenant = $1 AND run_id = $2 AND step = ANY ($3::text[]) AND {OF_THIS_RUN}
GROUP BY step
"""
"""The totals of these steps' model calls."""

CALLS = f"""
SELECT call_id, step, kind, model, backend, status, input_tokens, output_tokens, cached_tokens,
       latency_ms, cost_usd, sum(cost_usd) OVER () AS cost_of_run
FROM report.usage u
WHERE tenant = $1 AND run_id = $2 AND {OF_THIS_RUN}
ORDER BY started_at
"""
"""The calls of a run, as in the report views."""

KEPT = f"""
SELECT DISTINCT call_id FROM hocket.content c
WHERE tenant = $1 AND run_id = $2 AND call_id = ANY ($3::text[]) AND {KEPT_OF_THIS_RUN}
"""
"""Of these calls, those whose prompts and answers are stored. They are stored once for a call, under its
own id, whichever of its attempts was answered."""


@dataclass(frozen=True, slots=True)
class RelatedRun:
    """A run started by another one (`sub-run`), or repeating it (`repeat`)."""

    relation: str
    run_id: str
    pipeline: str
    status: str
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step spent: its model calls, cost in US dollars, and tokens in and out; of a step that
    starts a run, those of that run and all below it."""

    calls: int = 0
    cost_usd: Decimal = Decimal(0)
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the calls to a model at a backend cost, and what they would have cost with another one."""

    model: str
    backend: str
    calls: int
    cost_usd: Decimal
    other_model: str
    other_backend: str
    other_cost_usd: Decimal


async def limits_of(context: Context, caller: Caller, run: RunDetail) -> tuple[FlowRun, ...]:
    """Return the limits by key at which a run waits before its first step."""
    if run.finished_at is not None:
        return ()
    return await waits_of(context, caller.tenant, run.run_id, content=caller.sees_content)


async def related_runs(pool: Pool, tenant: str, run_id: str) -> list[RelatedRun]:
    """Return up to MAX_RELATED runs of each relation, earliest first."""
    rows = await pool.fetch(RELATED, tenant, run_id, MAX_RELATED, timeout=QUERY_TIMEOUT_S)
    return [RelatedRun(**dict(row)) for row in rows]


async def elsewhere(pool: Pool, tenant: str, run_id: str) -> list[Elsewhere]:
    """Return what a run would have cost elsewhere, at the prices that the tenant was last charged."""
    rows = await pool.fetch(ELSEWHERE, tenant, run_id, MAX_OTHERS, timeout=QUERY_TIMEOUT_S)
    return [Elsewhere(**dict(row)) for row in rows]


async def step_costs(
    pool: Pool, tenant: str, run_id: str, steps: Collection[StepDetail]
) -> dict[str, StepCost]:
    """Return what each of these steps spent on models, and in sub-runs; others are left out."""
    roles = [(step.step, step.role) for step in steps]
    return await costs_by_step(pool, tenant, run_id, roles)


async def costs_by_step(
    pool: Pool, tenant: str, run_id: str, steps: Collection[tuple[str, str]]
) -> dict[str, StepCost]:
    """Return the same of steps that are given by key and role."""
    rows = await pool.fetch(
        STEP_COSTS, tenant, run_id, [key for key, _ in steps], timeout=QUERY_TIMEOUT_S
    )
    if started := [key for key, role in steps if role == SUB_RUN]:
        values = (run_id, tenant, started)
        rows += await pool.fetch(OF_SUB_RUN_STEPS, *values, timeout=QUERY_TIMEOUT_S)
    return {row["step"]: StepCost(row["calls"], row["cost_usd"], row["tokens"]) for row in rows}


def calls_sql(tenant: str, run_id: str) -> str:
    """Return the SQL for what a run's calls used and cost."""
    return shown_sql(CALLS, tenant, run_id)


def elsewhere_sql(tenant: str, run_id: str) -> str:
    """Return the SQL for what a run would have cost elsewhere."""
    return shown_sql(ELSEWHERE, tenant, run_id, MAX_OTHERS)


async def kept_calls(pool: Pool, tenant: str, run_id: str, calls: Collection[str]) -> set[str]:
    """Return, of these attempts of a run's calls, the ids of those whose calls' prompts and answers are
    stored."""
    wanted = {one for call_id in calls for one in (call_id, call_of(call_id))}
    rows = await pool.fetch(KEPT, tenant, run_id, list(wanted), timeout=QUERY_TIMEOUT_S)
    kept = {row["call_id"] for row in rows}
    return {call_id for call_id in calls if call_id in kept or call_of(call_id) in kept}
