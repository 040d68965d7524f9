"""Spending by day, pipeline, node and model, and how much of it was wasted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import asyncpg

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.postgres.database import TOO_SLOW

TABLE_TIMEOUT_S = 5.0
"""How long the query of one table may take. The page shows the others, and the SQL of this one."""
TOP = 20
"""Rows of each table, most expensive first."""
HEIGHT = 100
"""The height of the bar of the most expensive day, in the chart's units."""

TOTAL = """
SELECT coalesce(sum(cost_usd), 0) AS cost,
       coalesce(sum(calls) FILTER (WHERE kind <> 'tool'), 0)::bigint AS calls,
       coalesce(sum(cost_usd) FILTER (WHERE kind NOT IN ('call', 'tool')), 0) AS waste
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
"""
"""What all calls and tools cost, and how much of that was speculation, retries or stages of cascades
that did not count."""

BY_DAY = """
SELECT day, sum(cost_usd) AS cost,
       coalesce(sum(cost_usd) FILTER (WHERE kind NOT IN ('call', 'tool')), 0) AS waste
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
GROUP BY day
ORDER BY day
"""
"""What each day cost, and how much of that was speculation, retries or stages of cascades that did not
count."""

BY_PIPELINE = """
SELECT coalesce(pipeline, '(no pipeline)') AS name,
       coalesce(sum(calls) FILTER (WHERE kind <> 'tool'), 0)::bigint AS calls, sum(cost_usd) AS cost
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $3
"""
"""What each pipeline cost."""

BY_NODE = """
SELECT coalesce(pipeline, '(no pipeline)') || ' / ' || coalesce(node, '(no node)') AS name,
       coalesce(sum(calls) FILTER (WHERE kind <> 'tool'), 0)::bigint AS calls,
       sum(cost_usd) AS cost
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $3
"""
"""What each node of each pipeline cost."""

WASTE = """
SELECT coalesce(pipeline, '(no pipeline)') || ' / ' || coalesce(node, '(no node)') || ': ' || kind
           AS name, sum(calls)::bigint AS calls, sum(cost_usd) AS cost
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2 AND kind NOT IN ('call', 'tool')
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $3
"""
"""What was wasted, by node and kind."""

BY_KIND = """
SELECT kind AS name, coalesce(sum(calls) FILTER (WHERE kind <> 'tool'), 0)::bigint AS calls,
       sum(cost_usd) AS cost
FROM report.cost_by_kind
WHERE tenant = $1 AND day >= $2
GROUP BY 1
ORDER BY cost DESC, name
LIMIT $3
"""
"""What the calls of each kind cost, and what tools charged."""

BY_MODEL = """
SELECT model AS name, sum(calls)::bigint AS calls, coalesce(sum(cost_usd), 0) AS cost
FROM report.cost_by_model
WHERE tenant = $1 AND day >= $2
GROUP BY 1
ORDER BY cost DESC, name
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

TOTAL_OF_ALL = """
SELECT coalesce(sum(cost_usd), 0) AS cost
FROM report.cost_by_tenant
WHERE day >= $1
"""
"""What all tenants cost together."""

TABLES = (
    ("By pipeline", BY_PIPELINE),
    ("By node", BY_NODE),
    ("Waste by cause", WASTE),
    ("By kind", BY_KIND),
    ("By model", BY_MODEL),
    ("By label", BY_LABEL),
)

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
"""The cost of this month so far, the forecast, and how much of their budgets runs used."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A pipeline's month in US dollars; and of runs with a budget their number, the share they spent,
    and how many spent all of it (None if there were none)."""

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
class Table:
    """Costs grouped by one attribute, what their shares are of, and the SQL behind them. Its `lines` are
    None if the query took too long."""

    title: str
    whole: Decimal
    lines: list[Line] | None
    sql: str


@dataclass(frozen=True, slots=True)
class Bar:
    """What a day cost, how much of that was wasted, and the height of both (in units of HEIGHT)."""

    day: date
    cost: Decimal
    waste: Decimal
    height: float
    waste_height: float


@dataclass(frozen=True, slots=True)
class Days:
    """A bar for each day of a period, the most expensive of them, and the SQL behind them."""

    bars: list[Bar]
    top: Bar
    sql: str


@dataclass(frozen=True, slots=True)
class Spending:
    """Spending in a period: the total, the waste, the days, and the tables."""

    total: Decimal
    calls: int
    waste: Decimal
    sql: str
    days: Days
    tables: list[Table]


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts for the month, most expensive pipeline first, and the SQL behind them. The `lines` are
    None if the query took too long."""

    lines: list[Forecast] | None
    sql: str


async def forecasts(pool: Pool, tenant: str) -> Forecasts:
    """Return the forecasts for the month."""
    rows = await _rows(pool, FORECAST, tenant, TOP)
    lines = None if rows is None else [Forecast(**dict(row)) for row in rows]
    return Forecasts(lines, shown_sql(FORECAST, tenant, TOP))


async def spending(pool: Pool, tenant: str, days: int, *, of_all: bool = False) -> Spending:
    """Return the spending of the last `days`, today included; with `of_all`, also by tenant. Empty
    tables are left out."""
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    whole = await pool.fetchrow(TOTAL, tenant, first, timeout=QUERY_TIMEOUT_S)
    tables = [
        await _table(pool, title, whole["cost"], query, tenant, first) for title, query in TABLES
    ]
    if of_all:
        cost = await _rows(pool, TOTAL_OF_ALL, first)
        whole_of_all = cost[0]["cost"] if cost else Decimal(0)
        tables.append(await _table(pool, "By tenant", whole_of_all, BY_TENANT, first))
    return Spending(
        total=whole["cost"],
        calls=whole["calls"],
        waste=whole["waste"],
        sql=shown_sql(TOTAL, tenant, first),
        days=await _by_day(pool, tenant, first, days),
        tables=[table for table in tables if table.lines != []],
    )


async def _by_day(pool: Pool, tenant: str, first: date, days: int) -> Days:
    rows = await pool.fetch(BY_DAY, tenant, first, timeout=QUERY_TIMEOUT_S)
    found = {row["day"]: (row["cost"], row["waste"]) for row in rows}
    bars = day_bars(found, first, days)
    return Days(bars, max(bars, key=lambda bar: bar.cost), shown_sql(BY_DAY, tenant, first))


def day_bars(found: Mapping[date, tuple[Decimal, Decimal]], first: date, days: int) -> list[Bar]:
    """Return a bar for each day from `first` on; days without spending have no height. Pure."""
    most = max((cost for cost, _ in found.values()), default=Decimal(0)) or Decimal(1)
    bars = []
    for day in (first + timedelta(days=number) for number in range(days)):
        cost, waste = found.get(day, (Decimal(0), Decimal(0)))
        heights = (round(float(HEIGHT * amount / most), 2) for amount in (cost, waste))
        bars.append(Bar(day, cost, waste, *heights))
    return bars


async def _table(pool: Pool, title: str, whole: Decimal, query: str, *values: str | date) -> Table:
    rows = await _rows(pool, query, *values, TOP)
    lines = None if rows is None else _lines(rows)
    return Table(title, whole, lines, shown_sql(query, *values, TOP))


async def _rows(
    pool: Pool, query: str, *values: str | int | date
) -> Sequence[asyncpg.Record] | None:
    """Return the rows of a query, or None if it takes longer than TABLE_TIMEOUT_S."""
    try:
        rows: Sequence[asyncpg.Record] = await pool.fetch(query, *values, timeout=TABLE_TIMEOUT_S)
    except TOO_SLOW:
        return None
    return rows


def _lines(rows: Sequence[asyncpg.Record]) -> list[Line]:
    return [Line(row["name"], row["calls"], row["cost"]) for row in rows]
