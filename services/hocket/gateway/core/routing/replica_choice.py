"""Chooses a replica for one call: pure, deterministic, and explained.

`choose` considers every replica of the model and of its fallback models. Those that cannot take the
call now are refused with a reason. Of the rest, those in the first tier are compared (dedicated
before serverless if the model's mode is `auto`; then the fallback models in order, unless all that
is missing is a free place), and the lowest score wins. The current state is passed in as a `View`,
whose mappings must not change during a decision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from hocket.gateway.core.config.table import BackendSpec, Choose, ModelSpec, PoolSpec, RoutingTable
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.core.routing.locality import NO_PROMPT, Prompt, ReplicaCache, crowd_of
from hocket.gateway.core.routing.tenant_breakers import ReplicaBreaker
from hocket.gateway.core.warming.warm_leases import ColdStart
from hocket.schemas.checks.plain_json import shown_text

_TYPICAL = 0.5


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What routing knows about a call.

    `tried` are the replicas on which it already failed. A `fast` call may use slots reserved for
    fast calls, and an `urgent` one (interactive or overdue) those reserved for interactive calls. A
    replica must have at least `min_quality` and all of the `labels`, and keep data within
    `residency`, if given.
    """

    model: str
    fast: bool = False
    urgent: bool = False
    tried: tuple[str, ...] = ()
    min_quality: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()
    residency: str | None = None
    prompt: Prompt = NO_PROMPT
    until_ms: float = inf
    """The call's deadline: it waits for a cold replica only if that can be ready in time."""
    tenant: str = ""
    fields: frozenset[str] = frozenset()
    """Unusual fields of the body, which are sent only to backends configured to pass them on."""
    too_dear: frozenset[str] = frozenset()
    """Replicas for whose prices the budgets of the call have no room."""


@dataclass(slots=True)
class View:
    """The state at the time of a decision.

    By replica key: calls in flight, how long the replica asked to rest, and its breaker. By pool:
    calls in flight, and those of them that are not fast.
    """

    now_ms: float
    in_flight: Mapping[str, int] = field(default_factory=dict)
    resting_until_ms: Mapping[str, float] = field(default_factory=dict)
    pool_in_flight: Mapping[str, int] = field(default_factory=dict)
    pool_slow: Mapping[str, int] = field(default_factory=dict)
    breakers: Mapping[str, ReplicaBreaker] = field(default_factory=dict)
    durations: CallDurations | None = None
    caches: Mapping[str, ReplicaCache] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    """This gateway's part of each shared limit, by replica key or by pool (`pool_cap`)."""
    cold: Mapping[str, ColdStart] = field(default_factory=dict)
    """Replicas that must be started first."""
    drained: Mapping[str, str] = field(default_factory=dict)
    """Who took a replica out of service and why, by replica key."""
    reserved_until_ms: Mapping[str, float] = field(default_factory=dict)
    """Until when slots are reserved for interactive calls, by pool."""

    def reserves(self, pool: str) -> bool:
        """Return whether slots of a pool are currently reserved for interactive calls."""
        return self.reserved_until_ms.get(pool, -inf) > self.now_ms


def limit_of(caps: Mapping[str, int], spec: BackendSpec) -> int:
    """Return how many calls this gateway may have at a replica."""
    return caps.get(spec.key, spec.limit)


def pool_limits(caps: Mapping[str, int], name: str, pool: PoolSpec) -> tuple[int, int]:
    """Return how many calls this gateway may have in a pool, and how many that are not fast."""
    limit = caps.get(pool_cap(name), pool.limit) if caps else pool.limit
    reserved = pool.reserved_fast * limit // max(pool.limit, 1)
    return limit, limit - reserved


def pool_cap(pool: str) -> str:
    """Return the name of a pool's limit, distinct from every replica key."""
    return f"pool {pool}"


class Obstacle(StrEnum):
    """Why a replica cannot take a call now."""

    TRIED = "tried"
    UNFIT = "unfit"
    SPARED = "spared"
    DRAINED = "drained"
    COLD = "cold"
    OPEN = "open"
    RESTING = "resting"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ReplicaCandidate:
    """A replica that was considered: the lowest score wins;
    `refused` says why it cannot take the call."""

    backend: str
    score: tuple[float, ...]
    obstacle: Obstacle | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which replica gets a call, and why.

    `chosen` is None if none can take it now. Then `pools` are those it may wait for (none if every
    breaker is open), and `retry_at_ms` is when a replica that rests, is cold or has an open breaker
    can be asked again. `obstacles` are those of the suitable replicas not yet tried; without any,
    the call is unroutable.
    """

    model: str
    candidates: tuple[ReplicaCandidate, ...]
    chosen: BackendSpec | None
    reason: str
    retry_at_ms: float | None = None
    pools: frozenset[str] = frozenset()
    obstacles: frozenset[Obstacle] = frozenset()

    @property
    def unroutable(self) -> bool:
        """Whether no replica will ever take the call."""
        return self.chosen is None and not self.obstacles


def choose(table: RoutingTable, call: CallFacts, view: View) -> Decision:
    """Choose a replica in the first tier that can take the call; raise ModelUnknown.

    Replicas are compared by load, price, latency or cached prefix, as the model is configured.
    """
    best: tuple[tuple[float, ...], BackendSpec, Choose] | None = None
    candidates: list[ReplicaCandidate] = []
    left: list[tuple[BackendSpec, Obstacle]] = []
    free = 0
    patient: ModelSpec | None = None
    crowds: dict[int, float] = {}
    for order, (tier, model, spec) in enumerate(_in_tiers(table, call.model)):
        calls = view.in_flight.get(spec.key, 0)
        score = (tier, *_score(model, spec, calls, call, view, crowds), order)
        obstacle, refused = _refusal(table, model, spec, calls, call, view)
        if patient not in (None, model):
            obstacle, refused = Obstacle.SPARED, "stands in only for what cannot be waited for"
        elif obstacle is Obstacle.FULL or _starts_in_time(obstacle, spec, call, view):
            patient = model
        candidates.append(ReplicaCandidate(spec.key, score, obstacle, refused))
        if obstacle is None:
            free += 1
            if best is None or score < best[0]:
                best = (score, spec, model.choose)
        elif obstacle not in (Obstacle.TRIED, Obstacle.UNFIT, Obstacle.SPARED):
            left.append((spec, obstacle))
    if best is not None:
        reason = _praise(best[2], best[0], free)
        return Decision(call.model, tuple(candidates), best[1], reason)
    return _nobody(call, view, tuple(candidates), left)


def cold_of(decision: Decision) -> tuple[str, ...]:
    """Return the replicas that would have been preferred if they were not cold, best first."""
    chosen = decision.chosen
    tier = next(
        (one.score[0] for one in decision.candidates if chosen and one.backend == chosen.key), inf
    )
    cold = [
        one for one in decision.candidates if one.obstacle is Obstacle.COLD and one.score[0] < tier
    ]
    return tuple(one.backend for one in sorted(cold, key=lambda one: one.score))


def alternatives(table: RoutingTable, call: CallFacts) -> tuple[str, ...]:
    """Return the other models that meet the call's requirements, as suggestions for the caller."""
    own = {spec.key for _, _, spec in _in_tiers(table, call.model)}
    return tuple(
        name
        for name, model in table.models.items()
        if any(spec.key not in own and not _unfit(model, spec, call) for spec in model.backends)
    )


def _nobody(
    call: CallFacts,
    view: View,
    candidates: tuple[ReplicaCandidate, ...],
    left: list[tuple[BackendSpec, Obstacle]],
) -> Decision:
    at_ms = [
        _again_ms(spec, obstacle, call, view)
        for spec, obstacle in left
        if obstacle not in (Obstacle.FULL, Obstacle.DRAINED)
    ]
    return Decision(
        call.model,
        candidates,
        None,
        "; ".join(f"{candidate.backend} {candidate.refused}" for candidate in candidates),
        retry_at_ms=min(at_ms, default=None),
        pools=frozenset(spec.pool for spec, obstacle in left if obstacle is not Obstacle.OPEN),
        obstacles=frozenset(obstacle for _, obstacle in left),
    )


def _again_ms(spec: BackendSpec, obstacle: Obstacle, call: CallFacts, view: View) -> float:
    if obstacle is Obstacle.RESTING:
        return view.resting_until_ms[spec.key]
    if obstacle is Obstacle.COLD:
        return view.cold[spec.key].expected_ms(view.now_ms)
    return view.breakers[spec.key].retry_at_ms(call.tenant)


def _starts_in_time(
    obstacle: Obstacle | None, spec: BackendSpec, call: CallFacts, view: View
) -> bool:
    if obstacle is not Obstacle.COLD:
        return False
    return view.cold[spec.key].expected_ms(view.now_ms) < call.until_ms


def _in_tiers(table: RoutingTable, name: str) -> Iterator[tuple[float, ModelSpec, BackendSpec]]:
    """Yield the replicas of a model, then those of its fallbacks, each with its tier."""
    model = table.model(name)
    for tier, one in enumerate((model, *map(table.model, model.fallbacks))):
        for spec in one.backends:
            spill = one.mode == "auto" and spec.hosting == "serverless"
            yield 2.0 * tier + spill, one, spec


def _score(
    model: ModelSpec,
    spec: BackendSpec,
    calls: int,
    call: CallFacts,
    view: View,
    crowds: dict[int, float],
) -> tuple[float, ...]:
    load, price = calls / spec.limit, spec.rank_usd
    if model.choose == "price":
        return price, load
    if model.choose == "latency":
        return _latency_ms(spec, calls, view), load
    if model.choose == "locality":
        cache = view.caches.get(spec.key)
        if cache is None:
            return 0.0, load
        if id(model) not in crowds:
            crowds[id(model)] = crowd_of([view.in_flight.get(one.key, 0) for one in model.backends])
        cost_ms = cache.fit(call.prompt, view.now_ms).cost_ms
        return float(calls > crowds[id(model)]), cost_ms, cache.oldest_ms()
    return load, price


def _latency_ms(spec: BackendSpec, calls: int, view: View) -> float:
    """Return how long calls at a replica usually take.

    A replica of which that is not known is tried by one call at a time, because it may never answer.
    """
    usual_ms = view.durations.of_replica(spec.key, _TYPICAL) if view.durations else None
    if usual_ms is None:
        return inf if calls else 0.0
    return usual_ms


def _refusal(
    table: RoutingTable,
    model: ModelSpec,
    spec: BackendSpec,
    calls: int,
    call: CallFacts,
    view: View,
) -> tuple[Obstacle | None, str]:
    """Return why a replica cannot take a call now, as an obstacle and in words."""
    if spec.key in call.tried:
        return Obstacle.TRIED, "was tried already"
    if unfit := _unfit(model, spec, call):
        return Obstacle.UNFIT, unfit
    if spec.key in call.too_dear:
        return Obstacle.UNFIT, "costs more than the budgets have room for"
    if (drained := view.drained.get(spec.key)) is not None:
        return Obstacle.DRAINED, f"is drained {drained}".rstrip()
    if (cold := view.cold.get(spec.key)) is not None:
        left_ms = cold.expected_ms(view.now_ms) - view.now_ms
        return Obstacle.COLD, f"is not loaded; it can be ready in {left_ms / 1000:.1f} s"
    if (until_ms := view.resting_until_ms.get(spec.key, 0.0)) > view.now_ms:
        return Obstacle.RESTING, f"asked to rest for another {until_ms - view.now_ms:.0f} ms"
    breaker = view.breakers.get(spec.key)
    if breaker is not None and not breaker.admits(call.tenant, view.now_ms):
        left_ms = max(breaker.retry_at_ms(call.tenant) - view.now_ms, 0.0)
        state = breaker.state_for(call.tenant)
        return Obstacle.OPEN, f"has its breaker {state} for another {left_ms:.0f} ms"
    full = _full(table.pools[spec.pool], spec, calls, call, view)
    return (Obstacle.FULL, full) if full else (None, "")


def _full(pool: PoolSpec, spec: BackendSpec, calls: int, call: CallFacts, view: View) -> str:
    """Return why a replica has no slot for a call, or an empty string."""
    own_limit = limit_of(view.caps, spec)
    if calls >= own_limit:
        return f"is at its limit of {_limit(own_limit, spec.limit)}"
    limit, slow_limit = pool_limits(view.caps, spec.pool, pool)
    if view.pool_in_flight.get(spec.pool, 0) >= limit:
        return f"waits for its pool `{spec.pool}`, at its limit of {_limit(limit, pool.limit)}"
    if call.fast:
        return ""
    slow = view.pool_slow.get(spec.pool, 0)
    if slow >= slow_limit:
        return f"waits: {limit - slow_limit} of {limit} places of `{spec.pool}` are for fast calls"
    if not call.urgent and view.reserves(spec.pool):
        reserved = pool.reserved_of(own_limit)
        if calls >= own_limit - reserved:
            return f"waits: {reserved} of its places are reserved for interactive calls"
        reserved = pool.reserved_of(slow_limit)
        if slow >= slow_limit - reserved:
            its = f"{reserved} of {limit} places of `{spec.pool}`"
            return f"waits: {its} are reserved for interactive calls"
    return ""


def _limit(mine: int, whole: int) -> str:
    return f"{whole}" if mine == whole else f"{mine}, its share here of {whole}"


def _unfit(model: ModelSpec, spec: BackendSpec, call: CallFacts) -> str:
    """Return why a replica can never take a call, or an empty string."""
    if model.mode not in ("auto", spec.hosting):
        return f"is {spec.hosting}, the model's mode is {model.mode}"
    least = max(model.min_quality, call.min_quality)
    if least > 0 and (spec.quality is None or spec.quality < least):
        known = "unknown" if spec.quality is None else f"{spec.quality:g}"
        return f"has quality {known}, below the floor of {least:g}"
    if call.residency is not None and call.residency not in spec.residency:
        return f"does not keep data in `{call.residency}`"
    if call.fields and spec.sends_fields and not call.fields <= spec.pass_fields:
        return f"does not let `{shown_text(min(call.fields - spec.pass_fields))}` through"
    return _unlabelled(spec, call) if call.labels else ""


def _unlabelled(spec: BackendSpec, call: CallFacts) -> str:
    for name, value in call.labels:
        if (name, value) not in spec.labels:
            return f"is not labelled {name}={value}"
    return ""


def _praise(choose: Choose, score: tuple[float, ...], free: int) -> str:
    if free == 1:
        return "the only backend that can take the call"
    first, second = score[1], score[2]
    if choose == "price":
        return f"lowest price ({first:g} USD for a million in and out), then load ({second:.0%})"
    if choose == "latency":
        known = f"{first:.0f} ms is typical" if 0 < first < inf else "not known yet"
        return f"shortest latency ({known}), then load ({second:.0%})"
    if choose == "locality":
        return f"least prefill, its own and the one to wait for (weighed {second:.0f} ms)"
    return f"least load ({first:.0%} of its limit), then price ({second:g} USD for a million in and out)"
