"""The call scheduler: which call gets a slot at which replica, and which call waits.

A call gets a slot at once if routing finds one (`placement.py`); otherwise it waits in the lines of
its pools (`queue.py`). While interactive calls arrive, some slots are reserved for them
(`reserve.py`). If every breaker is open (`replica_health.py`), no call waits at all. Everything
runs on one event loop, so the counts (`occupancy.py`) are always exact.
"""

from collections.abc import Callable, Mapping, Sequence, Set

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.capacity.occupancy import Occupancy, UsageTracker
from hocket.gateway.capacity.placement import Placement
from hocket.gateway.capacity.queue import CallQueue
from hocket.gateway.capacity.replica_health import ReplicaHealth
from hocket.gateway.capacity.reserve import Reserve
from hocket.gateway.capacity.slot import PlacementRequest, Slot
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.errors import DeadlinePassed
from hocket.gateway.core.routing.history import CallDurations, Kind
from hocket.gateway.core.warming.warm_leases import ColdStart
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import HocketError

_MEDIAN = 0.5
"""The quantile of past durations taken as the expected duration of a call."""


class CallScheduler:
    """Hands out slots at replicas.

    `queue` holds the waiting calls, `health` the breakers and rests of the replicas, and `caches`
    the expected contents of their prefix caches.
    """

    def __init__(
        self,
        table: RoutingTable,
        now_ms: Callable[[], float],
        metrics: GatewayMetrics | None = None,
        usage: UsageTracker | None = None,
    ) -> None:
        self.durations = CallDurations()
        self._now_ms = now_ms
        self._contention_observers: list[Callable[[], None]] = []
        self._cold_observers: list[Callable[[Sequence[str]], None]] = []
        self._contended: Set[str] = frozenset()
        self._occupancy = Occupancy(table, usage)
        self._reserve = Reserve(table, self._occupancy)
        self.health = ReplicaHealth(table, self.durations, now_ms, metrics, self._on_health)
        self._placement = Placement(
            table,
            self._occupancy,
            self._reserve,
            self.health,
            self.durations,
            released=self._on_released,
            missed=self._on_missed,
        )
        self.caches = self._placement.caches
        self.queue = CallQueue(table, self._reserve, self._placement, now_ms)

    def observe_contention(self, observer: Callable[[], None]) -> None:
        """Have `observer` called when a call has to wait, and when a slot that another gateway
        waits for is released."""
        self._contention_observers.append(observer)

    def observe_cold(self, observer: Callable[[Sequence[str]], None]) -> None:
        """Have `observer` called with the replicas that a call would have preferred if they were
        not cold, best first."""
        self._cold_observers.append(observer)

    def demand(self, pool: str, replica: BackendSpec | None = None) -> tuple[int, int]:
        """Return how many calls are in a pool (or at one of its replicas),
        and how many wait for the pool."""
        occupancy = self._occupancy
        in_use = occupancy.in_pool(pool) if replica is None else occupancy.at_replica(replica.key)
        return in_use, self.queue.lines.waiting(pool)

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table; waiting calls are looked at again."""
        for part in (self._occupancy, self._reserve, self.health, self._placement, self.queue):
            part.replace(table)
        self.queue.offer_all()

    def use_caps(self, caps: Mapping[str, int], contended: Set[str]) -> None:
        """Use only these parts of shared limits, by replica key and `pool_cap`.

        `contended` are the replicas and pools whose slots other gateways wait for.
        """
        self._contended = contended
        if self._occupancy.use_caps(caps):
            self.queue.offer_all()

    def use_cold(self, cold: Mapping[str, ColdStart]) -> None:
        """Send nothing to these replicas, because they must be started first."""
        if self._placement.use_cold(cold):
            self.queue.offer_all()

    def is_fast(self, kind: Kind, guess: bool) -> bool:
        """Return whether calls of a kind count as fast in every pool they may use, and so may take
        reserved slots.

        `guess` is the answer for an unknown kind.
        """
        usual_ms = self.durations.of_kind(kind, _MEDIAN)
        return guess if usual_ms is None else usual_ms <= self._reserve.fast_ms(kind[0])

    async def place(self, request: PlacementRequest, cancellation: Cancellation) -> Slot | None:
        """Return a slot for a call; None if every suitable replica was tried already.

        Raises DeadlinePassed, CallStopped, ModelUnknown, NoBackendSuits, BackendsUnavailable if
        every breaker is open, BackendsCold if no replica can be started in time, and BackendsBusy
        if waiting would be useless.
        """
        now_ms = self._now_ms()
        cancellation.check()
        if now_ms >= request.deadline_at_ms:
            raise DeadlinePassed(late_ms=round(now_ms - request.deadline_at_ms))
        decision = self._placement.choose(request, now_ms)
        if request.facts.urgent and (begun := self._reserve.renew(request.facts.model, now_ms)):
            self.queue.expect_reserve_end(begun, now_ms)
        if decision.chosen is not None:
            return self._placement.take(request, decision, now_ms)
        if decision.unroutable and request.facts.tried:
            return None
        expected_ms = self.durations.of_kind(request.kind, _MEDIAN) or 0.0
        return await self.queue.wait(
            request, decision, expected_ms, cancellation, entered=self._notify_contention
        )

    def place_now(self, request: PlacementRequest, among: Set[str]) -> Slot | None:
        """Return a slot at one of the given replicas; None if none has one free at once. No cold one
        is started for it."""
        now_ms = self._now_ms()
        decision = self._placement.choice(request, now_ms)
        if decision.chosen is None or decision.chosen.key not in among:
            return None
        return self._placement.take(request, decision, now_ms)

    def _on_released(self, slot: Slot, error: HocketError | None, unused: bool) -> None:
        spec = slot.spec
        waited_for = len(self.queue) > 0
        pool_was_spent = waited_for and self._reserve.pool_is_spent(spec.pool)
        self._placement.remove(slot, error, self._now_ms(), unused=unused)
        if waited_for:
            reserved = not pool_was_spent and self._reserve.replica_is_spent(spec)
            self.queue.offer(spec.pool, 1, replica_reserved=reserved)
        if spec.key in self._contended or spec.pool in self._contended:
            self._notify_contention()

    def _on_health(self) -> None:
        self.queue.offer_all()

    def _on_missed(self, cold: Sequence[str]) -> None:
        for observer in self._cold_observers:
            observer(cold)

    def _notify_contention(self) -> None:
        for observer in self._contention_observers:
            observer()
