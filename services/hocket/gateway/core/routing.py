"""The choice of a replica for one call: pure, deterministic, and explained.

`choose` looks at every replica of the model. Those that cannot take the call now are refused with the
reason; of the others those of the first tier are compared (our own machines before somebody's, where
the model's mode is `auto`), and the lowest score wins. What is known about the moment comes in as a
`View`, whose mappings nobody changes while a decision is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hocket.gateway.core.table import BackendSpec, ModelSpec, RoutingTable

MAX_ATTEMPTS = 4
"""Backends that one call is tried on, the first included."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What routing knows about a call: `tried` are the replicas that it failed on already; a `fast`
    call may use the places that pools reserve."""

    model: str
    fast: bool = False
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The moment of a decision, by replica key: calls at each one, and until when one wants to rest;
    by pool: calls in its places, and those of them that are not fast."""

    now_ms: float
    in_flight: Mapping[str, int] = field(default_factory=dict)
    resting_until_ms: Mapping[str, float] = field(default_factory=dict)
    pool_in_flight: Mapping[str, int] = field(default_factory=dict)
    pool_slow: Mapping[str, int] = field(default_factory=dict)


class Obstacle(StrEnum):
    """Why a replica cannot take a call now."""

    TRIED = "tried"
    UNFIT = "unfit"
    RESTING = "resting"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that was looked at: the lower score wins; `refused` says why it cannot take the call."""

    backend: str
    score: tuple[float, ...]
    obstacle: Obstacle | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which replica gets a call, and why. `chosen` is None where none can take it now.

    `retry_at_ms` is when a resting one can be asked again, where one is resting; `pools` are those whose
    places the call may wait for. `hopeless` tells that no replica will ever take the call, and
    `all_rest` that none can take it before `retry_at_ms`.
    """

    model: str
    candidates: tuple[Candidate, ...]
    chosen: BackendSpec | None
    reason: str
    retry_at_ms: float | None = None
    pools: frozenset[str] = frozenset()
    hopeless: bool = False
    all_rest: bool = False


def choose(table: RoutingTable, call: CallFacts, view: View) -> Decision:
    """Choose the replica with the smallest share of its limit in use, then the cheapest, in the first
    tier that can take the call. Raises ModelUnknown."""
    model = table.model(call.model)
    best: tuple[tuple[float, ...], BackendSpec] | None = None
    candidates: list[Candidate] = []
    free = 0
    for order, spec in enumerate(model.backends):
        calls = view.in_flight.get(spec.key, 0)
        score = (_tier(model, spec), calls / spec.limit, float(spec.prices.rank_usd), order)
        obstacle, refused = _refusal(table, model, spec, calls, call, view)
        candidates.append(Candidate(spec.key, score, obstacle, refused))
        if obstacle is None:
            free += 1
            if best is None or score < best[0]:
                best = (score, spec)
    if best is not None:
        return Decision(call.model, tuple(candidates), best[1], _praise(best[0], free))
    return _nobody(model, call, view, tuple(candidates))


def _nobody(
    model: ModelSpec, call: CallFacts, view: View, candidates: tuple[Candidate, ...]
) -> Decision:
    left = [
        (spec, candidate.obstacle)
        for spec, candidate in zip(model.backends, candidates, strict=True)
        if candidate.obstacle not in (Obstacle.TRIED, Obstacle.UNFIT)
    ]
    return Decision(
        call.model,
        candidates,
        None,
        "; ".join(f"{candidate.backend} {candidate.refused}" for candidate in candidates),
        retry_at_ms=min(
            (
                view.resting_until_ms[spec.key]
                for spec, obstacle in left
                if obstacle is Obstacle.RESTING
            ),
            default=None,
        ),
        pools=frozenset(spec.pool for spec, _ in left),
        hopeless=not left,
        all_rest=bool(left) and all(obstacle is Obstacle.RESTING for _, obstacle in left),
    )


def _tier(model: ModelSpec, spec: BackendSpec) -> float:
    return 1.0 if model.mode == "auto" and spec.hosting == "serverless" else 0.0


def _refusal(
    table: RoutingTable,
    model: ModelSpec,
    spec: BackendSpec,
    calls: int,
    call: CallFacts,
    view: View,
) -> tuple[Obstacle | None, str]:
    if spec.key in call.tried:
        return Obstacle.TRIED, "was tried already"
    if model.mode not in ("auto", spec.hosting):
        return Obstacle.UNFIT, f"is {spec.hosting}, the model's mode is {model.mode}"
    if (until_ms := view.resting_until_ms.get(spec.key, 0.0)) > view.now_ms:
        return Obstacle.RESTING, f"asked to rest for another {until_ms - view.now_ms:.0f} ms"
    if calls >= spec.limit:
        return Obstacle.FULL, f"is at its limit of {spec.limit}"
    pool = table.pools[spec.pool]
    if view.pool_in_flight.get(spec.pool, 0) >= pool.limit:
        return Obstacle.FULL, f"waits for its pool `{spec.pool}`, at its limit of {pool.limit}"
    if not call.fast and view.pool_slow.get(spec.pool, 0) >= pool.limit - pool.reserved_fast:
        reserved = f"{pool.reserved_fast} of {pool.limit} places of `{spec.pool}`"
        return Obstacle.FULL, f"waits: {reserved} are for fast calls"
    return None, ""


def _praise(score: tuple[float, ...], free: int) -> str:
    if free == 1:
        return "the only backend that can take the call"
    _, load, price, _ = score
    return (
        f"least load ({load:.0%} of its limit), then price ({price:g} USD for a million in and out)"
    )
