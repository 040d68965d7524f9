"""Models: the state of a gateway, figures of their calls, and routing decisions."""

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.ids import is_run_id
from hocket.schemas.messages import CallDecision

GATEWAY_TIMEOUT_MS = 2_000
MAX_DECISIONS = 50
MAX_LINES = 200

CALLS = """
SELECT model, backend, count(*) AS calls, count(*) FILTER (WHERE status <> 'ok') AS failed,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95_ms,
       coalesce(sum(cost_usd), 0) AS cost
FROM report.usage
WHERE tenant = $1 AND started_at > now() - interval '1 day'
GROUP BY model, backend
ORDER BY cost DESC, model, backend
LIMIT $2
"""
"""Figures of the last day's calls, by model and backend."""

DECISIONS = """
SELECT call_id, run_id, node, model, backend, status, cost_usd, latency_ms, started_at, decision
FROM hocket.usage
WHERE tenant = $1 AND decision IS NOT NULL AND started_at > now() - interval '7 days'
  AND ($2::text IS NULL OR model = $2) AND ($3::text IS NULL OR backend = $3)
ORDER BY started_at DESC
LIMIT $4
"""
"""The latest calls with the decisions behind them."""


@dataclass(frozen=True, slots=True)
class CallLine:
    """The calls to a model at a backend."""

    model: str
    backend: str
    calls: int
    failed: int
    p95_ms: float | None
    cost: Decimal


@dataclass(frozen=True, slots=True)
class CallTable:
    """The last day's calls, most expensive model and backend first, and the SQL behind them."""

    lines: list[CallLine]
    sql: str


@dataclass(frozen=True, slots=True)
class GatewayView:
    """The view of the gateway that answered: models, and their prices."""

    models: list[dict[str, Any]] = field(default_factory=list)
    prices: dict[str, dict[str, str]] = field(default_factory=dict)
    """Prices in US dollars as decimals, by backend, if configured."""


async def gateway_view(bus: Bus) -> GatewayView | None:
    """Return the view of one gateway, or None if none answers."""
    try:
        reply = await bus.request(subjects.GATEWAY_MODELS, b"{}", timeout_ms=GATEWAY_TIMEOUT_MS)
    except (BusUnavailable, TimeoutError):
        return None
    told = json.loads(reply.data)
    return GatewayView(told.get("models", []), told.get("prices", {}))


async def call_table(pool: Pool, tenant: str) -> CallTable:
    """Return the figures of the last day's calls."""
    rows = await pool.fetch(CALLS, tenant, MAX_LINES, timeout=QUERY_TIMEOUT_S)
    lines = [CallLine(**dict(row)) for row in rows]
    return CallTable(lines, shown_sql(CALLS, tenant, MAX_LINES))


async def decisions(
    pool: Pool, tenant: str, model: str | None, backend: str | None
) -> list[dict[str, Any]]:
    """Return the latest calls with their decisions, optionally of one model or backend only. A call may
    name a run that is none of the platform's (`is_own`), which has no page."""
    rows = await pool.fetch(
        DECISIONS, tenant, model, backend, MAX_DECISIONS, timeout=QUERY_TIMEOUT_S
    )
    return [
        {
            **dict(row),
            "decision": CallDecision.model_validate_json(row["decision"]),
            "is_own": is_run_id(row["run_id"] or ""),
        }
        for row in rows
    ]
