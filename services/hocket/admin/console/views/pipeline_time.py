"""Where the time and money of a pipeline's last seven days were spent."""

from dataclasses import dataclass
from decimal import Decimal

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.costs import reads as costs
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool

TOP = 8

TIME = """
SELECT node, kind, sum(ms)::double precision AS ms
FROM report.critical_path
WHERE tenant = $1 AND pipeline = $2 AND day > (now() AT TIME ZONE 'UTC')::date - 7
GROUP BY node, kind
ORDER BY ms DESC NULLS LAST, node, kind
LIMIT 500
"""
"""How long each node held up runs, by kind of time."""

MONEY = """
SELECT coalesce(node, '(no node)') AS node, sum(cost_usd) AS cost_usd,
       coalesce(sum(cost_usd) FILTER (WHERE kind NOT IN ('call', 'tool')), 0) AS waste_usd,
       sum(sum(cost_usd)) OVER () AS whole_usd
FROM report.cost_by_kind
WHERE tenant = $1 AND pipeline = $2 AND day > (now() AT TIME ZONE 'UTC')::date - 7
GROUP BY 1
ORDER BY cost_usd DESC, node
LIMIT $3
"""
"""What each node cost, how much of that was speculation or retries, and what all nodes cost."""


@dataclass(frozen=True, slots=True)
class TimeLine:
    """One kind of time spent by a node on critical paths."""

    node: str
    kind: str
    ms: float
    share: float


@dataclass(frozen=True, slots=True)
class MoneyLine:
    """What a node cost."""

    node: str
    cost: Decimal
    waste: Decimal


@dataclass(frozen=True, slots=True)
class LastDays:
    """The largest entries of both, and what all nodes cost; the first of `time` is the bottleneck."""

    time: list[TimeLine]
    money: list[MoneyLine]
    cost: Decimal
    time_sql: str
    money_sql: str


def calls_sql(tenant: str, pipeline: str, version: int) -> str:
    """Return the SQL for the cost of a version's calls."""
    return shown_sql(costs.BY_NODE, tenant, pipeline, version, costs.MAX_ROWS)


async def last_days(pool: Pool, tenant: str, pipeline: str) -> LastDays:
    """Return where time and money were spent."""
    times = await pool.fetch(TIME, tenant, pipeline, timeout=QUERY_TIMEOUT_S)
    money = await pool.fetch(MONEY, tenant, pipeline, TOP, timeout=QUERY_TIMEOUT_S)
    total = sum(row["ms"] or 0.0 for row in times) or 1.0
    return LastDays(
        time=[
            TimeLine(row["node"], row["kind"], row["ms"] or 0.0, (row["ms"] or 0.0) / total)
            for row in times[:TOP]
        ],
        money=[MoneyLine(row["node"], row["cost_usd"], row["waste_usd"]) for row in money],
        cost=money[0]["whole_usd"] if money else Decimal(0),
        time_sql=shown_sql(TIME, tenant, pipeline),
        money_sql=shown_sql(MONEY, tenant, pipeline, TOP),
    )
