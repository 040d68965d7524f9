"""Errors for calls that no replica can take now and that must not wait for a slot."""

from hocket.gateway.capacity.slot import PlacementRequest
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.errors import (
    BackendsBusy,
    BackendsCold,
    BackendsUnavailable,
    DeadlinePassed,
    NoBackendSuits,
    WaitTooLong,
)
from hocket.gateway.core.routing.breaker import BreakerState
from hocket.gateway.core.routing.replica_choice import Decision, Obstacle, alternatives
from hocket.schemas.errors import HocketError

MAX_OBSTACLES = 3
"""The most replicas that the error of a call which waited to its deadline names."""
BUSY_RETRY_MS = 1_000.0
"""How long callers are told to wait if no backend says how long it rests."""


def rejection(
    table: RoutingTable, request: PlacementRequest, decision: Decision, now_ms: float
) -> HocketError | None:
    """Return the error of a call for which waiting is useless; None if it may get a slot in time."""
    if decision.unroutable:
        return NoBackendSuits(
            model=request.facts.model, reason=decision.reason, component="gateway"
        )
    if decision.obstacles == {Obstacle.OPEN}:
        return BackendsUnavailable(
            model=request.facts.model,
            reason=decision.reason,
            component=request.facts.model,
            state=BreakerState.OPEN.value,
            retry_at_ms=decision.retry_at_ms,
            alternatives=alternatives(table, request.facts),
        )
    in_time = (decision.retry_at_ms or 0.0) < request.deadline_at_ms
    if Obstacle.FULL in decision.obstacles or in_time:
        return None
    if Obstacle.COLD in decision.obstacles:
        return BackendsCold(
            model=request.facts.model,
            reason=decision.reason,
            component=request.facts.model,
            state="cold",
            retry_at_ms=decision.retry_at_ms,
            alternatives=alternatives(table, request.facts),
        )
    return busy(table, request, decision.reason, decision.retry_at_ms or now_ms + BUSY_RETRY_MS)


def queue_full(
    table: RoutingTable, request: PlacementRequest, decision: Decision, now_ms: float
) -> BackendsBusy:
    """Return the error of a call that may not wait because the queue is full."""
    reason = f"{decision.reason}; and no more calls may wait"
    return busy(table, request, reason, now_ms + BUSY_RETRY_MS)


def overdue(request: PlacementRequest, decision: Decision, late_ms: int) -> DeadlinePassed:
    """Return the error of a call that waited to its deadline, with what was in its way."""
    if decision.chosen is not None:
        return DeadlinePassed(late_ms=late_ms)
    told = [f"{one.backend} {one.refused}" for one in decision.candidates[:MAX_OBSTACLES]]
    if len(decision.candidates) > MAX_OBSTACLES:
        told.append(f"and {len(decision.candidates) - MAX_OBSTACLES} more")
    return WaitTooLong(late_ms=late_ms, model=request.facts.model, reason="; ".join(told))


def busy(
    table: RoutingTable, request: PlacementRequest, reason: str, retry_at_ms: float
) -> BackendsBusy:
    """Return the error of a call whose replicas have no slot for it."""
    return BackendsBusy(
        model=request.facts.model,
        reason=reason,
        component="gateway",
        state="full",
        retry_at_ms=retry_at_ms,
        alternatives=alternatives(table, request.facts),
    )
