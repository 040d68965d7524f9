"""The list of pipelines with figures of their last days, and an example input for each."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.lookups import OF_THIS_RUN
from hocket.schemas.rest import PipelineSummary

MAX_EXAMPLE_DEPTH = 6

LAST_DAYS = f"""
WITH RECURSIVE above(run_id, usd) AS (
    SELECT * FROM (
        SELECT u.run_id, sum(u.cost_usd)
        FROM hocket.usage u
        WHERE u.tenant = $1 AND u.run_id LIKE 'r%' AND u.call_id LIKE 'http:%'
          AND u.started_at > now() - interval '8 days' AND {OF_THIS_RUN}
        GROUP BY u.run_id
    ) door
    UNION ALL
    SELECT r.parent ->> 'run_id', above.usd
    FROM above
    CROSS JOIN LATERAL (
        SELECT one.parent FROM hocket.run one
        WHERE one.run_id = above.run_id AND one.tenant = $1 AND one.parent IS NOT NULL OFFSET 0) r
), outside AS MATERIALIZED (
    SELECT r.pipeline, sum(above.usd) AS usd
    FROM above
    CROSS JOIN LATERAL (
        SELECT one.pipeline FROM hocket.run one
        WHERE one.run_id = above.run_id AND one.tenant = $1
          AND one.accepted_at > now() - interval '7 days' OFFSET 0) r
    GROUP BY r.pipeline
)
SELECT r.pipeline, count(*) AS runs, coalesce(max(slo.ended), 0) AS ended,
       coalesce(max(slo.met), 0) AS met,
       percentile_cont(0.95) WITHIN GROUP (
           ORDER BY extract(epoch FROM r.finished_at - r.accepted_at) * 1000
       ) FILTER (WHERE r.finished_at IS NOT NULL) AS p95_ms,
       sum(r.spent_usd) + coalesce(max(outside.usd), 0) AS cost_usd
FROM hocket.run r
LEFT JOIN (
    SELECT pipeline, sum(runs)::bigint AS ended, sum(met)::bigint AS met
    FROM report.slo_attainment
    WHERE tenant = $1 AND pipeline = ANY ($2::text[])
      AND day > (now() AT TIME ZONE 'UTC')::date - 7
    GROUP BY pipeline
) slo USING (pipeline)
LEFT JOIN outside USING (pipeline)
WHERE r.tenant = $1 AND r.pipeline = ANY ($2::text[]) AND r.accepted_at > now() - interval '7 days'
GROUP BY r.pipeline
"""
"""Figures of these pipelines' runs; whether deadlines were met comes from `report.slo_attainment`. Their
cost is what lists of runs show: with sub-runs, and with the calls of the HTTP door that name one."""


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline, and its runs of the last seven days."""

    summary: PipelineSummary
    runs: int = 0
    ended: int = 0
    met: int = 0
    p95_ms: float | None = None
    cost_usd: Decimal = Decimal(0)


async def with_last_days(
    pool: Pool, tenant: str, summaries: tuple[PipelineSummary, ...]
) -> list[PipelineRow]:
    """Return these pipelines with the figures of their runs."""
    names = [summary.pipeline for summary in summaries]
    rows = await pool.fetch(LAST_DAYS, tenant, names, timeout=QUERY_TIMEOUT_S)
    by_name = {row["pipeline"]: dict(row) for row in rows}
    for found in by_name.values():
        del found["pipeline"]
    return [PipelineRow(summary, **by_name.get(summary.pipeline, {})) for summary in summaries]


def last_days_sql(tenant: str, summaries: tuple[PipelineSummary, ...]) -> str:
    """Return the SQL for the figures of these pipelines' runs."""
    return shown_sql(LAST_DAYS, tenant, [summary.pipeline for summary in summaries])


def example_of(schema: Any, depth: int = 0) -> Any:
    """Return an example value for an input schema: from its defaults and examples, otherwise by its
    type. Pure."""
    if not isinstance(schema, dict) or depth > MAX_EXAMPLE_DEPTH:
        return None
    for given in ("default", "const"):
        if given in schema:
            return schema[given]
    for given in ("examples", "enum"):
        if isinstance(schema.get(given), list) and schema[given]:
            return schema[given][0]
    properties = schema.get("properties")
    match schema.get("type", "object" if isinstance(properties, dict) or depth == 0 else None):
        case "object" if isinstance(properties, dict):
            return {name: example_of(part, depth + 1) for name, part in properties.items()}
        case "object":
            return {}
        case "array":
            item = example_of(schema.get("items"), depth + 1)
            return [] if item is None else [item]
        case "string":
            return ""
        case "integer" | "number":
            return 0
        case "boolean":
            return False
    return None
