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
SELECT model AS name, count(*) AS calls, coalesce(sum(cost_usd), 0) AS cost
FROM hocket.usage
WHERE tenant = $1 AND started_at >= $2
GROUP BY model
ORDER BY cost DESC
LIMIT $3
"""
"""What each model cost."""


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


async def spending(pool: Pool, tenant: str, days: int) -> Spending:
    """Return what the last days cost, today included."""
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    rows = await pool.fetch(COSTS, tenant, first, timeout=QUERY_TIMEOUT_S)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    models = await pool.fetch(BY_MODEL, tenant, start, TOP, timeout=QUERY_TIMEOUT_S)

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
            (
                "model",
                [Line(row["name"], row["calls"], row["cost"]) for row in models],
                "SELECT * FROM report.cost_by_node",
            ),
        ],
    )


def _waste(rows: Sequence[asyncpg.Record]) -> list[Line]:
    """Return what was spent for nothing by pipeline, node and kind, the dearest first."""
    lines = [
        Line(f"{row['pipeline']} / {row['node']}: {row['kind']}", row["calls"], row["cost_usd"])
        for row in rows
        if row["kind"] != "call"
    ]
    return sorted(lines, key=lambda line: -line.cost)[:TOP]
