"""What was spent, by pipeline, node and model, and what of it was waste."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool

TOP = 20
"""Rows of each table, the dearest first."""

COSTS = """
SELECT coalesce(pipeline, '(no pipeline)') AS pipeline, coalesce(node, '(no node)') AS node, kind,
       sum(calls)::bigint AS calls, sum(cost_usd) AS cost_usd
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
GROUP BY 1, 2, 3
ORDER BY cost_usd DESC
LIMIT 5000
"""
"""What each node of each pipeline cost, by kind."""

BY_MODEL = """
SELECT model AS name, sum(calls)::bigint AS calls, coalesce(sum(cost_usd), 0) AS cost
FROM report.cost_by_model
WHERE tenant = $1 AND day >= $2
GROUP BY model
ORDER BY cost DESC
LIMIT $3
"""
"""What each model cost."""


BY_LABEL = """
SELECT label || '=' || value AS name, sum(calls)::bigint AS calls, sum(cost_usd) AS cost
FROM report.cost_by_label
WHERE tenant = $1 AND day >= $2 AND NOT starts_with(label, 'hocket.')
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $3
"""
"""What each value of each label cost."""

BY_TENANT = """
SELECT tenant AS name, sum(calls)::bigint AS calls, sum(cost_usd) AS cost
FROM report.cost_by_tenant
WHERE day >= $1
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $2
"""
"""What each tenant cost."""

FORECAST = """
SELECT coalesce(f.pipeline, '(no pipeline)') AS pipeline, f.spent_usd, f.usd_per_day, f.forecast_usd,
       b.runs, b.burn, b.exhausted
FROM report.month_forecast f
LEFT JOIN (
    SELECT pipeline, sum(runs)::bigint AS runs, sum(runs_exhausted)::bigint AS exhausted,
           sum(mean_spent_usd * runs) / nullif(sum(mean_budget_usd * runs), 0) AS burn
    FROM report.run_budgets
    WHERE tenant = $1 AND day >= date_trunc('month', now() AT TIME ZONE 'UTC')::date
    GROUP BY pipeline
) b ON b.pipeline = f.pipeline
WHERE f.tenant = $1
ORDER BY f.forecast_usd DESC, pipeline
LIMIT $2
"""
"""What this month came to, what it will, and how far runs used the budgets that they had."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A pipeline's month in US dollars; of runs with a budget how many there were, what part of it they
    spent, and how many spent all of it (None without any)."""

    pipeline: str
    spent_usd: Decimal
    usd_per_day: Decimal
    forecast_usd: Decimal
    runs: int | None
    burn: Decimal | None
    exhausted: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table of costs."""

    name: str
    calls: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent in a time: in all, for nothing, and by what."""

    total: Decimal
    calls: int
    waste: Decimal
    tables: list[tuple[str, list[Line], str]]


async def forecasts(pool: Pool, tenant: str) -> list[Forecast]:
    """Return what the month will come to, the dearest pipeline first."""
    rows = await pool.fetch(FORECAST, tenant, TOP, timeout=QUERY_TIMEOUT_S)
    return [Forecast(**dict(row)) for row in rows]


async def spending(pool: Pool, tenant: str, days: int, *, of_all: bool = False) -> Spending:
    """Return what the last days cost, today included; with `of_all` also by tenant."""
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    rows = await pool.fetch(COSTS, tenant, first, timeout=QUERY_TIMEOUT_S)
    models = await pool.fetch(BY_MODEL, tenant, first, TOP, timeout=QUERY_TIMEOUT_S)
    labels = await pool.fetch(BY_LABEL, tenant, first, TOP, timeout=QUERY_TIMEOUT_S)
    tenants = await pool.fetch(BY_TENANT, first, TOP, timeout=QUERY_TIMEOUT_S) if of_all else []
    more = [
        ("label", _lines(labels), "SELECT * FROM report.cost_by_label"),
        ("tenant", _lines(tenants), "SELECT * FROM report.cost_by_tenant"),
    ]

    def top(names: list[str]) -> list[Line]:
        costs: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for name, row in zip(names, rows, strict=True):
            costs[name] += row["cost_usd"]
            calls[name] += row["calls"]
        return [Line(name, calls[name], Decimal(cost)) for name, cost in costs.most_common(TOP)]

    source = "SELECT * FROM report.cost_by_kind"
    return Spending(
        total=sum((row["cost_usd"] for row in rows), Decimal(0)),
        calls=sum(row["calls"] for row in rows),
        waste=sum((row["cost_usd"] for row in rows if row["kind"] != "call"), Decimal(0)),
        tables=[
            ("pipeline", top([row["pipeline"] for row in rows]), source),
            ("node", top([f"{row['pipeline']} / {row['node']}" for row in rows]), source),
            ("waste", _waste(rows), f"{source} WHERE kind <> 'call'"),
            ("kind", top([row["kind"] for row in rows]), source),
            ("model", _lines(models), "SELECT * FROM report.cost_by_model"),
            *(table for table in more if table[1]),
        ],
    )


def _lines(rows: Sequence[asyncpg.Record]) -> list[Line]:
    return [Line(row["name"], row["calls"], row["cost"]) for row in rows]


def _waste(rows: Sequence[asyncpg.Record]) -> list[Line]:
    """Return what was spent for nothing by pipeline, node and kind, the dearest first."""
    lines = [
        Line(f"{row['pipeline']} / {row['node']}: {row['kind']}", row["calls"], row["cost_usd"])
        for row in rows
        if row["kind"] != "call"
    ]
    return sorted(lines, key=lambda line: -line.cost)[:TOP]
