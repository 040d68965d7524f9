"""Chooses a replica for a call, using the current state of all of them, and hands out its slot."""

from collections.abc import Callable, Mapping

from hocket.gateway.capacity.occupancy import Occupancy
from hocket.gateway.capacity.prompt_caches import PromptCaches
from hocket.gateway.capacity.replica_health import ReplicaHealth
from hocket.gateway.capacity.reserve import Reserve
from hocket.gateway.capacity.slot import PlacementRequest, Released, Slot
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.replica_choice import Decision, View, choose, cold_of
from hocket.gateway.core.warming.warm_leases import ColdStart
from hocket.schemas.errors import HocketError


class Placement:
    """Chooses replicas and hands out their slots.

    `released` takes back those slots and has them removed here; `missed` is called with the
    replicas that a call would have preferred if they were not cold.
    """

    def __init__(
        self,
        table: RoutingTable,
        occupancy: Occupancy,
        reserve: Reserve,
        health: ReplicaHealth,
        durations: CallDurations,
        *,
        released: Released,
        missed: Callable[[tuple[str, ...]], None],
    ) -> None:
        self.caches = PromptCaches(table)
        self._table = table
        self._occupancy = occupancy
        self._reserve = reserve
        self._health = health
        self._durations = durations
        self._released = released
        self._missed = missed
        self._cold: Mapping[str, ColdStart] = {}

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table."""
        self._table = table
        self.caches.replace(table)

    def use_cold(self, cold: Mapping[str, ColdStart]) -> bool:
        """Send nothing to these replicas, because they must be started first; return whether any
        replica is no longer cold."""
        ready = self._cold.keys() - cold.keys()
        self._cold = cold
        return bool(ready)

    def choose(self, request: PlacementRequest, now_ms: float) -> Decision:
        """Choose a replica for a call, and report cold ones that it misses; raise ModelUnknown."""
        decision = self.choice(request, now_ms)
        if self._cold and (missed := cold_of(decision)):
            self._missed(missed)
        return decision

    def choice(self, request: PlacementRequest, now_ms: float) -> Decision:
        """Return which replica would be chosen for a call; raise ModelUnknown."""
        occupancy, health = self._occupancy, self._health
        view = View(
            now_ms,
            occupancy.in_flight,
            health.resting_until_ms,
            occupancy.pool_in_flight,
            occupancy.pool_slow,
            health.breakers,
            self._durations,
            self.caches.by_replica,
            occupancy.caps,
            self._cold,
            health.drained,
            self._reserve.until_ms,
        )
        return choose(self._table, request.facts, view)

    def take(
        self, request: PlacementRequest, decision: Decision, now_ms: float, queue_ms: float = 0.0
    ) -> Slot:
        """Return a slot at the chosen replica."""
        spec, facts = decision.chosen, request.facts
        assert spec is not None
        cached_tokens = self.caches.send(spec.key, facts.prompt, now_ms)
        slot = Slot(
            self._released,
            request,
            decision,
            began_ms=now_ms,
            queue_ms=queue_ms,
            silence=self._health.silence(spec.key),
            cached_tokens=cached_tokens,
        )
        self._occupancy.add(spec, now_ms, fast=facts.fast)
        self._health.began(slot)
        return slot

    def remove(self, slot: Slot, error: HocketError | None, now_ms: float, *, unused: bool) -> None:
        """Count a slot as free, and learn from the outcome of its call."""
        spec = slot.spec
        self._occupancy.remove(spec, now_ms, fast=slot.request.facts.fast)
        if not self._occupancy.at_replica(spec.key):
            self.caches.idle(spec.key)
        self._health.ended(slot, error, now_ms, unused=unused)
