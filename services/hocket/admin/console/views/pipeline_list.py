"""The list of pipelines with figures of their last days, and an example input for each."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.rest import PipelineSummary

MAX_EXAMPLE_DEPTH = 6

LAST_DAYS = """
SELECT listed.pipeline, coalesce(counts.runs, 0) AS runs, coalesce(slo.ended, 0) AS ended,
       coalesce(slo.met, 0) AS met, took.p95_ms, coalesce(costs.usd, 0) AS cost_usd
FROM unnest($2::text[]) AS listed (pipeline)
LEFT JOIN (
    SELECT pipeline, sum(runs)::bigint AS runs
    FROM report.runs_by_hour
    WHERE tenant = $1 AND pipeline = ANY ($2::text[])
      AND day > (now() AT TIME ZONE 'UTC')::date - 7
    GROUP BY pipeline
) counts USING (pipeline)
LEFT JOIN (
    SELECT pipeline, sum(runs)::bigint AS ended, sum(met)::bigint AS met
    FROM report.slo_attainment
    WHERE tenant = $1 AND pipeline = ANY ($2::text[])
      AND day > (now() AT TIME ZONE 'UTC')::date - 7
    GROUP BY pipeline
) slo USING (pipeline)
LEFT JOIN (
    SELECT pipeline, sum(cost_usd) AS usd
    FROM report.cost_by_kind
    WHERE tenant = $1 AND pipeline = ANY ($2::text[])
      AND day > (now() AT TIME ZONE 'UTC')::date - 7
    GROUP BY pipeline
) costs USING (pipeline)
CROSS JOIN LATERAL (
    SELECT percentile_cont(0.95) WITHIN GROUP (
               ORDER BY extract(epoch FROM last.finished_at - last.accepted_at) * 1000
           ) AS p95_ms
    FROM (
        SELECT r.finished_at, r.accepted_at
        FROM hocket.run r
        WHERE r.tenant = $1 AND r.pipeline = listed.pipeline
          AND r.accepted_at > now() - interval '7 days'
        ORDER BY r.accepted_at DESC
        LIMIT 500
    ) last
    WHERE last.finished_at IS NOT NULL
) took
"""
"""Figures of these pipelines' runs, from the reports by day, so that a page takes as long for a million
runs as for a thousand. Each dollar counts for one pipeline, as on the page of a pipeline: what a sub-run
cost, for the pipeline of the sub-run. p95 is that of the last 500 runs."""


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
