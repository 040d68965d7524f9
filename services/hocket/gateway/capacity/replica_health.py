"""The health of each replica: its breakers, its rests, its slow calls,
and whether an operator drained it."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from hocket.gateway.backends.protocol import BackendError
from hocket.gateway.capacity.occupancy import decrement
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.core.calls.outcomes import outcome_of
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.routing.breaker import BreakerState, Outcome
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.tenant_breakers import ReplicaBreaker, Turn
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas import ids
from hocket.schemas.errors import HocketError

LOOK_S = 0.1
"""The least time after which a call that its reader held up is looked at again."""

log = structlog.get_logger()


class ReplicaHealth:
    """Reports the outcomes of calls to the breakers.

    `changed` is called when waiting calls may have to go elsewhere, or can go where they could not
    before.
    """

    def __init__(
        self,
        table: RoutingTable,
        durations: CallDurations,
        now_ms: Callable[[], float],
        metrics: GatewayMetrics | None,
        changed: Callable[[], None],
    ) -> None:
        self._durations = durations
        self._now_ms = now_ms
        self._metrics = metrics
        self._changed = changed
        self._breakers: dict[str, ReplicaBreaker] = {}
        self._resting_until_ms: dict[str, float] = {}
        self._drained: Mapping[str, str] = {}
        self._calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The number of calls at each replica, by tenant."""
        self._overdue: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Those of them that exceed the slow threshold."""
        self._timers: dict[Slot, asyncio.TimerHandle] = {}
        self._late: set[Slot] = set()
        self.replace(table)

    @property
    def breakers(self) -> Mapping[str, ReplicaBreaker]:
        """The breaker of each replica."""
        return self._breakers

    @property
    def resting_until_ms(self) -> Mapping[str, float]:
        """Until when each replica asked to receive no calls."""
        return self._resting_until_ms

    @property
    def drained(self) -> Mapping[str, str]:
        """Replicas that receive no calls, with who ordered that and why."""
        return self._drained

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table; breakers whose rule is unchanged keep their state."""
        before = self._breakers
        self._breakers = {
            spec.key: known
            if (known := before.get(spec.key)) is not None and known.rule == spec.breaker
            else ReplicaBreaker(spec.breaker, _dice_of(spec.key))
            for spec in table.backends()
        }
        for key, known in before.items():
            if self._breakers.get(key) is not known and self._metrics is not None:
                self._metrics.forget_breaker(key)
        for counts in (self._overdue, self._calls):
            for key in [key for key, held in counts.items() if not held]:
                del counts[key]

    def rest(self, key: str, until_ms: float) -> None:
        """Send no calls to a replica until `until_ms`, or longer if it asked for that before: whoever
        is told while it rests had asked it earlier."""
        self._resting_until_ms[key] = max(until_ms, self._resting_until_ms.get(key, 0.0))

    def use_drained(self, drained: Mapping[str, str]) -> None:
        """Send no new calls to exactly these replicas from now on; calls in flight continue."""
        if self._drained != drained:
            self._drained = drained
            self._changed()

    def reset(self, key: str) -> None:
        """Close a replica's breakers for all tenants, end its rest, and forget its history."""
        before = self._breakers.get(key)
        if before is None:
            return
        fresh = self._breakers[key] = ReplicaBreaker(before.rule, _dice_of(key))
        fresh.openings = before.openings
        self._resting_until_ms.pop(key, None)
        if self._metrics is not None:
            self._metrics.breaker(key, fresh.state, opened=False)
        log.info("breaker_reset", backend=key)
        self._changed()

    def began(self, slot: Slot) -> None:
        """Record that a call begins at a replica."""
        spec = slot.spec
        self._calls[spec.key][slot.tenant] += 1
        self._breakers[spec.key].began(slot.tenant, slot.began_ms)
        slow_ms = self._slow_ms(spec)
        if slow_ms is not None and spec.breaker.enabled:
            self._look_at(slot, asyncio.get_running_loop().time() + slow_ms / 1000)

    def ended(self, slot: Slot, error: HocketError | None, now_ms: float, *, unused: bool) -> None:
        """Record the outcome of a call; an `unused` slot says nothing about its server."""
        spec, tenant = slot.spec, slot.tenant
        timer = self._timers.pop(slot, None)
        if timer is not None:
            timer.cancel()
        decrement(self._calls[spec.key], tenant)
        if slot in self._late:
            self._late.discard(slot)
            decrement(self._overdue[spec.key], tenant)
        outcome = Outcome.NOTHING if unused else self._outcome(slot, error, now_ms)
        breaker = self._breakers.get(spec.key)
        if breaker is None:
            return
        turn = breaker.ended(
            tenant,
            outcome,
            now_ms,
            began_ms=slot.began_ms,
            unconnected=isinstance(error, BackendError) and error.unconnected,
        )
        if turn is not None:
            self._report(spec.key, breaker, turn)

    def _outcome(self, slot: Slot, error: HocketError | None, now_ms: float) -> Outcome:
        latency_ms = max(now_ms - slot.began_ms - slot.held_up_ms(), 0.0)
        outcome = outcome_of(error, latency_ms, self._slow_ms(slot.spec))
        if error is None and slot.request.is_typical:
            self._durations.add(slot.request.kind, slot.spec.key, latency_ms)
        return outcome

    def _look_at(self, slot: Slot, slow_at_s: float, after_s: float = 0.0) -> None:
        """Look at a call in flight when it would be slow, but not before `after_s` (both in the time
        of the event loop)."""
        loop = asyncio.get_running_loop()
        at_s = max(slow_at_s + slot.held_up_ms() / 1000, after_s)
        self._timers[slot] = loop.call_at(at_s, self._on_slow, slot, slow_at_s)

    def _on_slow(self, slot: Slot, slow_at_s: float) -> None:
        """Tell the breaker that a call in flight is already slow, unless its reader held it up."""
        key, tenant, now_s = slot.spec.key, slot.tenant, asyncio.get_running_loop().time()
        del self._timers[slot]
        held_up_s = slot.held_up_ms() / 1000
        if held_up_s and slow_at_s + held_up_s > now_s:
            self._look_at(slot, slow_at_s, now_s + LOOK_S)
            return
        self._late.add(slot)
        overdue, calls = self._overdue[key], self._calls[key]
        overdue[tenant] += 1
        breaker = self._breakers.get(key)
        if breaker is not None:
            turn = breaker.overdue(tenant, overdue, calls, self._now_ms())
            if turn is not None:
                self._report(key, breaker, turn)

    def _slow_ms(self, spec: BackendSpec) -> float | None:
        return spec.breaker.slow_ms or self._durations.slow_ms(spec.key)

    def _report(self, key: str, breaker: ReplicaBreaker, turn: Turn) -> None:
        """Log and count a breaker's change of state; waiting calls may then have to go elsewhere."""
        opened = turn.state is BreakerState.OPEN
        if self._metrics is not None:
            self._metrics.breaker(key, breaker.state, opened=opened)
        fields: dict[str, Any] = {"backend": key, "openings": breaker.openings}
        if turn.tenant is not None:
            fields["tenant"] = turn.tenant
        if opened:
            pause_ms = round(turn.retry_at_ms - self._now_ms())
            log.warning("breaker_opened", **fields, pause_ms=pause_ms)
            self._changed()
        else:
            log.info("breaker_closed", **fields)


def _dice_of(key: str) -> Callable[[int], float]:
    return lambda opening: ids.fraction("breaker", key, str(opening))
