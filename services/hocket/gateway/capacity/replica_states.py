"""What a gateway tells of its replicas: how many calls they have, and whether they get any."""

from collections.abc import Callable
from typing import Any

from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.core.config.table import RoutingTable


def replica_states(
    scheduler: CallScheduler, table: RoutingTable, now_ms: Callable[[], float]
) -> list[dict[str, Any]]:
    """Return the replicas of a table with their breakers, rests, calls and queues, as seen from here."""
    states = []
    for spec in table.backends():
        in_use, waiting = scheduler.demand(spec.pool, spec)
        breaker = scheduler.health.breakers[spec.key]
        rests_ms = scheduler.health.resting_until_ms.get(spec.key, 0.0) - now_ms()
        states.append(
            {
                "replica": spec.key,
                "backend": spec.name,
                "kind": spec.kind,
                "breaker": str(breaker.state),
                "openings": breaker.openings,
                "in_flight": in_use,
                "waiting": waiting,
                "rests_ms": round(max(rests_ms, 0.0)),
            }
        )
    return states
