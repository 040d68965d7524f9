"""The floor: exact counts of who is served where, and the calls that wait for a place.

A call gets a place at once where routing finds one; else it waits in its pools' lines, and whoever
gives a place back hands it to the next in line that it suits, in the same turn of the event loop, so
that no newcomer slips in between. What else changes who can be asked (a rest that ends, a breaker that
opens, a reload) looks through the lines again. While interactive calls come, some places are kept free
for them (`PoolSpec.interactive_share`), so that a long call of another class does not have the last one;
where calls spill none is kept. A waiting call ends with a place, with its deadline, or
with an error that says why it had to go; where every breaker is open nobody waits at all. All of it
runs on one event loop, so that no count is ever off.

The floor also keeps what it sees: a breaker per replica, and how long calls take.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import structlog

from hocket.gateway.backends.protocol import BackendError
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.calls.outcomes import outcome_of
from hocket.gateway.core.config.table import BackendSpec, PoolSpec, RoutingTable
from hocket.gateway.core.errors import (
    BackendsBusy,
    BackendsCold,
    BackendsUnavailable,
    DeadlinePassed,
    NoBackendSuits,
)
from hocket.gateway.core.routing.breaker import BreakerState, Outcome
from hocket.gateway.core.routing.history import CallDurations, Kind
from hocket.gateway.core.routing.locality import Prompt, ReplicaCache
from hocket.gateway.core.routing.queue import QueueClass, Ticket, WaitQueue
from hocket.gateway.core.routing.routing import (
    CallFacts,
    Decision,
    Obstacle,
    View,
    alternatives,
    choose,
    cold_of,
)
from hocket.gateway.core.routing.tenant_breakers import ReplicaBreaker, Turn
from hocket.gateway.core.warming.warm_leases import ColdStart
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas import ids
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Completion, Priority

BUSY_RETRY_MS = 1_000.0
"""What a caller is told to wait where no backend says how long it rests."""
MAX_LOOKED_AT = 64
"""Waiting calls that are offered a free place, before it is left free."""
KEPT_FOR_MS = 10_000.0
"""For so long after an interactive call places are kept free for the next one."""
_USUALLY = 0.5
"""The quantile of durations that says how long a call is expected to take."""
_GONE = PoolSpec(0)
"""A pool that left with a reload; who waits for it is looked at all the same."""


log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A call that wants a place: what routing knows of it, and how urgent it is."""

    facts: CallFacts
    kind: Kind
    priority: Priority
    deadline_at_ms: float
    useful_until_ms: float | None = None
    """When its answer is of use at the latest, if before the deadline; its turn goes by it."""


class Usage(Protocol):
    """Who keeps count of when replicas have calls."""

    def began(self, key: str, at_ms: float) -> None:
        """A replica has a call, after it had none."""
        ...

    def ended(self, key: str, at_ms: float) -> None:
        """A replica has no call any more."""
        ...


class Slot:
    """A place at a replica, held until it is given back."""

    def __init__(
        self,
        scheduler: "CallScheduler",
        wish: PlacementRequest,
        decision: Decision,
        *,
        began_ms: float,
        queue_ms: float,
    ) -> None:
        assert decision.chosen is not None
        self.spec: BackendSpec = decision.chosen
        self.wish = wish
        self.decision = decision
        self.began_ms = began_ms
        self.queue_ms = queue_ms
        self.overdue = False
        self.cached_tokens = 0
        """What the replica is expected to have of the prompt."""
        self.timer: asyncio.TimerHandle | None = None
        self._scheduler: CallScheduler | None = scheduler

    def release(self, error: HocketError | None = None, *, unused: bool = False) -> None:
        """Let the next call have the place, and say how the attempt ended; doing so twice does nothing.
        A place that is `unused` says nothing about its server."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler._given_back(self, error, unused)


@dataclass(eq=False, slots=True)
class _Waiter:
    wish: PlacementRequest
    ticket: Ticket
    place: "asyncio.Future[Slot]"


class CallScheduler:
    """Who is being served where, and who waits."""

    def __init__(
        self,
        table: RoutingTable,
        now_ms: Callable[[], float],
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self.durations = CallDurations()
        self._table = table
        self._now_ms = now_ms
        self._metrics = metrics
        self._in_flight: Counter[str] = Counter()
        self._overdue: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._of_tenants: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By replica: the calls of each tenant at it."""
        self._pool_in_flight: Counter[str] = Counter()
        self._pool_slow: Counter[str] = Counter()
        self._resting_until_ms: dict[str, float] = {}
        self._breakers: dict[str, ReplicaBreaker] = {}
        self._caches: dict[str, ReplicaCache] = {}
        self._room = WaitQueue()
        self._waiters: dict[int, _Waiter] = {}
        self._arrivals = itertools.count()
        self._look_again: asyncio.TimerHandle | None = None
        self._look_at_ms = inf
        self._fast_ms_of: dict[str, float] = {}
        self._keeping: dict[str, tuple[str, ...]] = {}
        """By model: the pools that keep places for its interactive calls."""
        self._kept_until_ms: dict[str, float] = {}
        self._caps: Mapping[str, int] = {}
        self._cold: Mapping[str, ColdStart] = {}
        self.missed: Callable[[Sequence[str]], None] = lambda cold: None
        """Called with the replicas that a call would rather have had, were they not cold."""
        self.usage: Usage | None = None
        """Told when a replica begins and ends to have calls, where somebody wants to know."""
        self.pressed: Callable[[], None] = lambda: None
        """Called when a call has to wait, and when a place comes back that others wait for."""
        self.owed: Set[str] = frozenset()
        """Replicas and pools whose places others wait for."""
        self.replace(table)

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._room)

    def use_caps(self, caps: Mapping[str, int]) -> None:
        """Have only these parts of limits that several gateways share, by replica key and pool_cap."""
        if caps != self._caps:
            self._caps = caps
            self._offer_all()

    def use_cold(self, cold: Mapping[str, ColdStart]) -> None:
        """Send nothing to these replicas: they have to be started first."""
        ready = self._cold.keys() - cold.keys()
        self._cold = cold
        if ready:
            self._offer_all()

    def most_cached(self, model: str, prompt: Prompt) -> int:
        """Return how many tokens of a prompt the replica has that has the most of it."""
        now_ms = self._now_ms()
        caches = [self._caches.get(spec.key) for spec in self._table.backends_of(model)]
        fits = [cache.fit(prompt, now_ms) for cache in caches if cache is not None]
        return max((fit.cached_tokens for fit in fits), default=0)

    def has_room(self, model: str) -> bool:
        """Return whether nobody waits for a place at a model."""
        pools = {spec.pool for spec in self._table.backends_of(model)}
        return not any(self._room.waiting(pool) for pool in pools)

    def wanted(self, spec: BackendSpec) -> tuple[int, int]:
        """Return how many calls are at a replica, and how many wait for a place of its pool."""
        return self._in_flight.get(spec.key, 0), self._room.waiting(spec.pool)

    def wanted_of_pool(self, pool: str) -> tuple[int, int]:
        """Return how many calls are in a pool's places, and how many wait for one."""
        return self._pool_in_flight.get(pool, 0), self._room.waiting(pool)

    @property
    def breakers(self) -> Mapping[str, ReplicaBreaker]:
        """The breaker of each replica."""
        return self._breakers

    def replace(self, table: RoutingTable) -> None:
        """Go on with another routing table; those who wait are looked at again."""
        self._table = table
        self._fast_ms_of = {}
        self._keeping = {}
        before = self._breakers
        self._breakers = {
            spec.key: kept
            if (kept := before.get(spec.key)) is not None and kept.rule == spec.breaker
            else ReplicaBreaker(spec.breaker, _dice_of(spec.key))
            for spec in table.backends()
        }
        for counts in (self._overdue, self._of_tenants):
            for key in [key for key, held in counts.items() if not held]:
                del counts[key]
        self._caches = {
            spec.key: held
            if (held := self._caches.get(spec.key)) is not None and held.cache == spec.prefix_cache
            else ReplicaCache(spec.prefix_cache)
            for spec in table.backends()
            if spec.prefix_cache is not None
        }
        self._offer_all()

    def metered(self, place: Slot, completion: Completion) -> None:
        """Take in what a replica says it had of a prompt."""
        cache = self._caches.get(place.spec.key)
        if cache is not None:
            cache.metered(place.cached_tokens, completion.cached_tokens)

    def rest(self, key: str, until_ms: float) -> None:
        """Ask a replica for nothing until then."""
        self._resting_until_ms[key] = until_ms

    async def place(self, wish: PlacementRequest, cancellation: Cancellation) -> Slot | None:
        """Return a place for a call; None where every replica that suits was tried already.

        Raises DeadlinePassed, CallStopped, ModelUnknown, NoBackendSuits, BackendsUnavailable where every
        breaker is open, and BackendsBusy where waiting is in vain.
        """
        now_ms = self._now_ms()
        cancellation.check()
        if now_ms >= wish.deadline_at_ms:
            raise DeadlinePassed(late_ms=round(now_ms - wish.deadline_at_ms))
        decision = self._choose(wish, now_ms)
        if wish.facts.urgent:
            self._keep(wish.facts.model, now_ms)
        if decision.chosen is not None:
            return self._taken(wish, decision, now_ms, 0.0)
        if decision.unroutable and wish.facts.tried:
            return None
        return await self._wait(self._entered(wish, decision, now_ms), cancellation)

    def place_now(self, wish: PlacementRequest, among: Set[str]) -> Slot | None:
        """Return a place at one of some replicas, None where none of them has one to give at once."""
        now_ms = self._now_ms()
        decision = self._choose(wish, now_ms)
        if decision.chosen is None or decision.chosen.key not in among:
            return None
        return self._taken(wish, decision, now_ms, 0.0)

    def is_fast(self, kind: Kind, guess: bool) -> bool:
        """Return whether calls of a kind are fast in every pool that they may use, and may so have the
        places that are kept for such; `guess` tells of a kind that was never seen."""
        usual_ms = self.durations.of_kind(kind, _USUALLY)
        return guess if usual_ms is None else usual_ms <= self._fast_ms(kind[0])

    def _fast_ms(self, model: str) -> float:
        known = self._fast_ms_of.get(model)
        if known is None:
            pools = {spec.pool for spec in self._table.backends_of(model)}
            known = min(self._table.pools[pool].fast_ms for pool in pools)
            self._fast_ms_of[model] = known
        return known

    def _keep(self, model: str, now_ms: float) -> None:
        """Keep places free for the interactive calls of a model, one of which has come."""
        pools = self._keeping.get(model)
        if pools is None:
            found = self._table.model(model)
            pools = () if found.spills else tuple({spec.pool for spec in found.backends})
            self._keeping[model] = pools
        for pool in pools:
            begins = self._kept_until_ms.get(pool, -inf) <= now_ms
            self._kept_until_ms[pool] = now_ms + KEPT_FOR_MS
            if begins and self._room.waiting(pool):
                self._expect(now_ms + KEPT_FOR_MS)

    def _choose(self, wish: PlacementRequest, now_ms: float) -> Decision:
        view = View(
            now_ms,
            self._in_flight,
            self._resting_until_ms,
            self._pool_in_flight,
            self._pool_slow,
            self._breakers,
            self.durations,
            self._caches,
            self._caps,
            self._cold,
            self._kept_until_ms,
        )
        decision = choose(self._table, wish.facts, view)
        if self._cold and (missed := cold_of(decision)):
            self.missed(missed)
        return decision

    def _taken(
        self, wish: PlacementRequest, decision: Decision, now_ms: float, queue_ms: float
    ) -> Slot:
        place = Slot(self, wish, decision, began_ms=now_ms, queue_ms=queue_ms)
        key = place.spec.key
        self._in_flight[key] += 1
        self._of_tenants[key][wish.facts.tenant] += 1
        if self.usage is not None and self._in_flight[key] == 1:
            self.usage.began(key, now_ms)
        self._pool_in_flight[place.spec.pool] += 1
        if not wish.facts.fast:
            self._pool_slow[place.spec.pool] += 1
        self._breakers[key].began(wish.facts.tenant, now_ms)
        cache = self._caches.get(key)
        if cache is not None:
            place.cached_tokens = cache.send(wish.facts.prompt, now_ms).cached_tokens
        slow_ms = self._slow_ms(place.spec)
        if slow_ms is not None and place.spec.breaker.enabled:
            loop = asyncio.get_running_loop()
            place.timer = loop.call_later(slow_ms / 1000, self._takes_long, place)
        return place

    def _given_back(self, place: Slot, error: HocketError | None, unused: bool) -> None:
        spec, now_ms = place.spec, self._now_ms()
        if place.timer is not None:
            place.timer.cancel()
        was_full = self._leaves_few(spec.pool)
        tenant = place.wish.facts.tenant
        _less(self._in_flight, spec.key)
        _less(self._of_tenants[spec.key], tenant)
        if self.usage is not None and spec.key not in self._in_flight:
            self.usage.ended(spec.key, now_ms)
        _less(self._pool_in_flight, spec.pool)
        if not place.wish.facts.fast:
            _less(self._pool_slow, spec.pool)
        if place.overdue:
            _less(self._overdue[spec.key], tenant)
        cache = self._caches.get(spec.key)
        if cache is not None and not self._in_flight.get(spec.key):
            cache.idle()
        outcome = Outcome.NOTHING
        if not unused:
            latency_ms = now_ms - place.began_ms
            outcome = outcome_of(error, latency_ms, self._slow_ms(spec))
            if error is None:
                self.durations.add(place.wish.kind, spec.key, latency_ms)
        breaker = self._breakers.get(spec.key)
        if breaker is not None:
            turn = breaker.ended(
                tenant,
                outcome,
                now_ms,
                began_ms=place.began_ms,
                unconnected=isinstance(error, BackendError) and error.unconnected,
            )
            if turn is not None:
                self._watch(spec.key, breaker, turn)
        self._offer(spec.pool, 1, kept=not was_full and self._is_kept(spec))
        if spec.key in self.owed or spec.pool in self.owed:
            self.pressed()

    def _takes_long(self, place: Slot) -> None:
        """Tell the breaker that a call is slow although it has not ended."""
        key, tenant = place.spec.key, place.wish.facts.tenant
        place.overdue = True
        overdue, in_flight = self._overdue[key], self._of_tenants[key]
        overdue[tenant] += 1
        breaker = self._breakers.get(key)
        if breaker is not None:
            turn = breaker.overdue(tenant, overdue, in_flight, self._now_ms())
            if turn is not None:
                self._watch(key, breaker, turn)

    def _slow_ms(self, spec: BackendSpec) -> float | None:
        return spec.breaker.slow_ms or self.durations.slow_ms(spec.key)

    def _watch(self, key: str, breaker: ReplicaBreaker, turn: Turn) -> None:
        """Say what became of a breaker; those who wait may have to go elsewhere."""
        opened = turn.state is BreakerState.OPEN
        if self._metrics is not None:
            self._metrics.breaker(key, breaker.state, opened=opened)
        said = {"backend": key, "openings": breaker.openings}
        if turn.tenant is not None:
            said["tenant"] = turn.tenant
        if opened:
            log.warning("breaker_opened", **said, pause_ms=round(turn.retry_at_ms - self._now_ms()))
            self._offer_all()
        else:
            log.info("breaker_closed", **said)

    def _entered(self, wish: PlacementRequest, decision: Decision, now_ms: float) -> _Waiter:
        """Put a call in line, if need be in somebody's stead; raise where it may not wait."""
        vain = self._in_vain(wish, decision)
        if vain is not None:
            raise vain
        ticket = Ticket(
            next(self._arrivals),
            wish.priority,
            decision.pools,
            wish.deadline_at_ms if wish.useful_until_ms is None else wish.useful_until_ms,
            self.durations.of_kind(wish.kind, _USUALLY) or 0.0,
            now_ms,
            wish.facts.fast,
        )
        if all(self._full(pool) for pool in ticket.pools):
            shed = self._room.to_shed(ticket, min(ticket.pools))
            busy = self._busy(wish, f"{decision.reason}; and nobody else may wait", None)
            if shed is ticket:
                raise busy
            self._end(shed, busy)
        waiter = _Waiter(wish, ticket, asyncio.get_running_loop().create_future())
        self._room.enter(ticket)
        self._waiters[ticket.order] = waiter
        self.pressed()
        self._expect(decision.retry_at_ms)
        self._expect_no_keeping(ticket.pools, now_ms)
        return waiter

    def _in_vain(self, wish: PlacementRequest, decision: Decision) -> HocketError | None:
        """Return why a call that nobody can take now need not wait, or None."""
        model, reason = wish.facts.model, decision.reason
        if decision.unroutable:
            return NoBackendSuits(model=model, reason=reason, component="gateway")
        if decision.obstacles == {Obstacle.OPEN}:
            return BackendsUnavailable(
                model=model,
                reason=reason,
                component=model,
                state=BreakerState.OPEN.value,
                retry_at_ms=decision.retry_at_ms,
                alternatives=alternatives(self._table, wish.facts),
            )
        if (
            Obstacle.FULL not in decision.obstacles
            and (decision.retry_at_ms or 0.0) >= wish.deadline_at_ms
        ):
            if Obstacle.COLD in decision.obstacles:
                return BackendsCold(
                    model=model,
                    reason=reason,
                    component=model,
                    state="cold",
                    retry_at_ms=decision.retry_at_ms,
                    alternatives=alternatives(self._table, wish.facts),
                )
            return self._busy(wish, reason, decision.retry_at_ms)
        return None

    def _full(self, pool: str) -> bool:
        return self._room.waiting(pool) >= self._table.pools[pool].max_waiting

    async def _wait(self, waiter: _Waiter, cancellation: Cancellation) -> Slot:
        left_ms = waiter.wish.deadline_at_ms - waiter.ticket.entered_at_ms
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._late, waiter)
        place: Slot | None = None
        try:
            place = await cancellation.guard(waiter.place)
            cancellation.check()
        except BaseException:
            if (
                waiter.place.done()
                and not waiter.place.cancelled()
                and not waiter.place.exception()
            ):
                waiter.place.result().release()
            raise
        finally:
            timer.cancel()
            self._room.leave(waiter.ticket)
            self._waiters.pop(waiter.ticket.order, None)
        return place

    def _late(self, waiter: _Waiter) -> None:
        late_ms = round(self._now_ms() - waiter.wish.deadline_at_ms)
        self._end(waiter.ticket, DeadlinePassed(late_ms=max(late_ms, 0)))

    def _end(self, ticket: Ticket, error: HocketError) -> None:
        """Send a waiting call away."""
        waiter = self._waiters.get(ticket.order)
        self._room.leave(ticket)
        if waiter is not None and not waiter.place.done():
            waiter.place.set_exception(error)

    def _offer_all(self) -> None:
        for pool in self._room.pools():
            self._offer(pool, MAX_LOOKED_AT)

    def _offer(self, pool: str, most: int, *, kept: bool = False) -> None:
        """Give up to `most` places of a pool to those who wait for them, the most urgent first. `kept`
        places are at a replica that has no others free."""
        if not len(self._room):
            return
        for ticket in self._next(pool, kept):
            most -= self._offer_to(self._waiters[ticket.order])
            if most <= 0:
                return

    def _next(self, pool: str, kept: bool) -> list[Ticket]:
        """Return the calls that may have a place of a pool as it is filled now."""
        now_ms = self._now_ms()
        if pool not in self._table.pools:
            return self._room.line(pool, MAX_LOOKED_AT)
        if self._pool_slow.get(pool, 0) >= self._slow_limit(pool) > 0:
            return self._room.line(pool, MAX_LOOKED_AT, (QueueClass.FAST,))
        keeps = self._kept_until_ms.get(pool, -inf) > now_ms
        if keeps and (kept or self._leaves_few(pool)):
            line = self._room.line(pool, MAX_LOOKED_AT, (QueueClass.FAST, QueueClass.INTERACTIVE))
            return sorted([*line, *self._room.due(pool, now_ms, MAX_LOOKED_AT)])[:MAX_LOOKED_AT]
        return self._room.line(pool, MAX_LOOKED_AT)

    def _slow_limit(self, pool: str) -> int:
        spec = self._table.pools.get(pool, _GONE)
        return View(0.0, caps=self._caps).places(pool, spec)[1]

    def _leaves_few(self, pool: str) -> bool:
        """Return whether a pool has no more places than it keeps, where it keeps any, or none at all."""
        spec = self._table.pools.get(pool, _GONE)
        limit, slow_limit = View(0.0, caps=self._caps).places(pool, spec)
        slow = self._pool_slow.get(pool, 0)
        return (
            slow >= slow_limit - spec.kept_of(slow_limit)
            or self._pool_in_flight.get(pool, 0) >= limit
        )

    def _is_kept(self, spec: BackendSpec) -> bool:
        """Return whether a replica has no more places than it keeps for interactive calls."""
        limit = self._caps.get(spec.key, spec.limit)
        kept = self._table.pools.get(spec.pool, _GONE).kept_of(limit)
        return kept > 0 and self._in_flight.get(spec.key, 0) >= limit - kept

    def _offer_to(self, waiter: _Waiter) -> bool:
        """Choose again for a waiting call; tell whether it has a place now."""
        if waiter.place.done():
            # it was stopped in this turn of the loop, and has not heard of it yet
            self._room.leave(waiter.ticket)
            return False
        now_ms = self._now_ms()
        if waiter.ticket.due_ms <= now_ms and not waiter.wish.facts.urgent:
            waiter.wish = replace(waiter.wish, facts=replace(waiter.wish.facts, urgent=True))
        try:
            decision = self._choose(waiter.wish, now_ms)
        except HocketError as error:  # its model left with a reload
            self._end(waiter.ticket, error)
            return False
        if decision.chosen is not None:
            self._room.leave(waiter.ticket)
            queue_ms = now_ms - waiter.ticket.entered_at_ms
            waiter.place.set_result(self._taken(waiter.wish, decision, now_ms, queue_ms))
            return True
        vain = self._in_vain(waiter.wish, decision)
        if vain is not None:
            self._end(waiter.ticket, vain)
        else:
            self._moved(waiter, decision)
        return False

    def _moved(self, waiter: _Waiter, decision: Decision) -> None:
        """Let a call wait where it can be served as things are now."""
        if decision.pools != waiter.ticket.pools:
            self._room.leave(waiter.ticket)
            waiter.ticket = replace(waiter.ticket, pools=decision.pools)
            self._room.enter(waiter.ticket)
        self._expect(decision.retry_at_ms)

    def _expect(self, at_ms: float | None) -> None:
        """Look at those who wait again at a time, or earlier."""
        if at_ms is None:
            return
        if self._look_again is not None:
            if self._look_at_ms <= at_ms:
                return
            self._look_again.cancel()
        self._look_at_ms = at_ms
        left_ms = max(at_ms - self._now_ms(), 0.0)
        self._look_again = asyncio.get_running_loop().call_later(left_ms / 1000, self._look)

    def _expect_no_keeping(self, pools: Iterable[str], now_ms: float) -> None:
        """Look again when places are not kept any more: who waits may have them then."""
        for pool in pools:
            until_ms = self._kept_until_ms.get(pool, -inf)
            if until_ms > now_ms:
                self._expect(until_ms)

    def _look(self) -> None:
        self._look_again = None
        self._offer_all()
        self._expect_no_keeping(self._room.pools(), self._now_ms())

    def _busy(self, wish: PlacementRequest, reason: str, retry_at_ms: float | None) -> BackendsBusy:
        return BackendsBusy(
            model=wish.facts.model,
            reason=reason,
            component="gateway",
            state="full",
            retry_at_ms=retry_at_ms or self._now_ms() + BUSY_RETRY_MS,
            alternatives=alternatives(self._table, wish.facts),
        )


def _dice_of(key: str) -> Callable[[int], float]:
    return lambda opening: ids.fraction("breaker", key, str(opening))


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
