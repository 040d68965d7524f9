"""The health of each replica: its breakers, its rests, its slow calls,
and whether an operator drained it."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from hocket.gateway.backends.protocol import BackendError
from hocket.gateway.capacity.occupancy import decrement
from hocket.gateway.capacity.silence import LastHeard, Silence
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.core.calls.outcomes import outcome_of
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.routing.breaker import BreakerState, Outcome
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.tenant_breakers import ReplicaBreaker, Turn
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas import ids
from hocket.schemas.errors import HocketError

HELD_UP_SHARE = 0.1
"""A stream whose reader holds it up for a larger share of its time teaches no pace: its replica wrote
meanwhile."""
TICK_S = 0.005
"""How much too early a timer may be."""
LEAST_LOOK = 0.1
"""The least time between two looks at a call, as a share of the time from which it is slow."""

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
        self.drained: Mapping[str, str] = {}
        """Replicas that receive no calls, with who ordered that and why."""
        self._calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The number of calls at each replica, by tenant."""
        self._overdue: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Those of them that exceed the slow threshold."""
        self._heard: defaultdict[str, LastHeard] = defaultdict(LastHeard)
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
        for key in self._heard.keys() - self._breakers.keys():
            del self._heard[key]

    def rest(self, key: str, until_ms: float) -> None:
        """Send no calls to a replica until `until_ms`, or longer if it asked for that before: whoever
        is told while it rests had asked it earlier."""
        self._resting_until_ms[key] = max(until_ms, self._resting_until_ms.get(key, 0.0))

    def use_drained(self, drained: Mapping[str, str]) -> None:
        """Send no new calls to exactly these replicas from now on; calls in flight continue."""
        if self.drained != drained:
            self.drained = drained
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

    def silence(self, key: str) -> Silence:
        """Return the silence of a replica to a call that begins now."""
        return Silence(self._heard[key])

    def began(self, slot: Slot) -> None:
        """Record that a call begins at a replica."""
        spec = slot.spec
        self._calls[spec.key][slot.tenant] += 1
        self._breakers[spec.key].began(slot.tenant, slot.began_ms)
        slow_ms = self._slow_ms(slot)
        if slow_ms is not None and spec.breaker.enabled:
            self._look_in(slot, slow_ms / 1000)

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
        is_unsent = isinstance(error, BackendError) and error.unsent
        outcome = Outcome.NOTHING
        if not (unused or is_unsent):
            outcome = self._outcome(slot, error, now_ms)
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
        silence, silent_ms, failed = slot.silence, latency_ms, error is not None
        if silence.in_pieces:
            silent_ms = silence.longest_ms(failed=failed)
        lost_ms = max(silent_ms, _behind_ms(slot, self._durations, writes=failed))
        outcome = outcome_of(error, lost_ms, self._slow_ms(slot))
        if outcome in (Outcome.OK, Outcome.SLOW):
            silence.end()
        if error is None and slot.request.is_typical:
            _learn(self._durations, slot, latency_ms, silent_ms)
        return outcome

    def _look_in(self, slot: Slot, after_s: float) -> None:
        """Look at a call in flight when it would be slow."""
        loop = asyncio.get_running_loop()
        self._timers[slot] = loop.call_later(after_s, self._on_look, slot)

    def _on_look(self, slot: Slot) -> None:
        """Tell the breaker that a call in flight is already slow, if its replica was silent, or has
        fallen behind with it, for so long.

        If it was silent to all, those of other kinds, which may take longer, say nothing for it.
        """
        key, tenant = slot.spec.key, slot.tenant
        del self._timers[slot]
        slow_ms = self._slow_ms(slot)
        if slow_ms is None:
            return
        silent_s = slot.silence.lasts_s()
        behind_s = _behind_ms(slot, self._durations, writes=True) / 1000
        left_s = slow_ms / 1000 - max(silent_s, behind_s)
        if left_s > TICK_S:
            self._look_in(slot, max(left_s, slow_ms / 1000 * LEAST_LOOK))
            return
        self._late.add(slot)
        overdue, calls = self._overdue[key], self._calls[key]
        overdue[tenant] += 1
        breaker = self._breakers.get(key)
        if breaker is not None:
            turn = breaker.overdue(tenant, overdue, calls, self._now_ms())
            if turn is None and slot.silence.is_of_all and silent_s >= behind_s:
                turn = breaker.overdue(tenant, overdue, overdue, self._now_ms())
            if turn is not None:
                self._report(key, breaker, turn)

    def _slow_ms(self, slot: Slot) -> float | None:
        request, spec = slot.request, slot.spec
        return spec.breaker.slow_ms or self._durations.slow_ms(
            spec.key, request.kind, in_pieces=request.in_pieces
        )

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


def _learn(durations: CallDurations, slot: Slot, latency_ms: float, silent_ms: float) -> None:
    """Remember how long a successful call took, and how long its replica was silent."""
    request, key, pace_ms = slot.request, slot.spec.key, slot.silence.pace_ms
    durations.add(request.kind, key, latency_ms)
    durations.add_silence(request.kind, key, silent_ms, in_pieces=request.in_pieces)
    if pace_ms is not None and slot.held_up_ms() <= HELD_UP_SHARE * latency_ms:
        durations.add_pace(request.kind, key, pace_ms)


def _behind_ms(slot: Slot, durations: CallDurations, *, writes: bool) -> float:
    """Return how far a stream has fallen behind what is usual, and 0 for other calls."""
    if not slot.silence.in_pieces:
        return 0.0
    slow_pace_ms = durations.slow_pace_ms(slot.spec.key, slot.request.kind)
    return slot.silence.behind_ms(slow_pace_ms, writes=writes)


def _dice_of(key: str) -> Callable[[int], float]:
    return lambda opening: ids.fraction("breaker", key, str(opening))
