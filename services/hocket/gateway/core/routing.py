"""The routing table, and the choice of a backend for one call.

A logical model is served by one or more backends; an alias is another name of a model. `choose` is
deterministic: what it knows about load comes in as arguments, and its decision lists every backend
that it looked at with the reason for or against it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import SecretStr

from hocket.gateway.core.errors import ModelUnknown
from hocket.gateway.core.price import Prices

DEFAULT_LIMIT = 64
"""Calls that a backend gets at once where its configuration does not say."""
DEFAULT_TIMEOUT_MS = 600_000.0
"""How long one call to a backend may take where its configuration does not say."""
MAX_ATTEMPTS = 4
"""Backends that one call is tried on, the first included."""

BackendKind = Literal["openai", "function"]


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """One served model version: where it is, how many calls it takes at once, what it costs.

    `target` is the model's name at an HTTP endpoint, or `module:function`.
    """

    name: str
    kind: BackendKind
    target: str
    base_url: str = ""
    api_key: SecretStr | None = None
    limit: int = DEFAULT_LIMIT
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Logical models with their backends, in the order of the configuration.

    `without_effect` names the configured fields that were understood as LiteLLM's and do nothing here.
    """

    models: Mapping[str, tuple[BackendSpec, ...]]
    aliases: Mapping[str, str] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()

    def backends_of(self, model: str) -> tuple[BackendSpec, ...]:
        """Return the backends of a model or alias; raise ModelUnknown."""
        found = self.models.get(self.aliases.get(model, model))
        if found is None:
            raise ModelUnknown(model=model, known=", ".join(self.names()))
        return found

    def backends(self) -> tuple[BackendSpec, ...]:
        """Return every backend of every model."""
        return tuple(backend for backends in self.models.values() for backend in backends)

    def names(self) -> tuple[str, ...]:
        """Return the names of all models and aliases, sorted."""
        return tuple(sorted({*self.models, *self.aliases}))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend that was looked at: the lower score wins; `refused` says why it cannot take the call."""

    backend: str
    score: tuple[float, float]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend gets a call, and why. `chosen` is None where no backend can take it now.

    `retry_at_ms` is when a resting backend can be asked again, where one is resting. `hopeless` tells
    that every backend was tried already.
    """

    model: str
    candidates: tuple[Candidate, ...]
    chosen: str | None
    reason: str
    retry_at_ms: float | None = None
    hopeless: bool = False


def choose(
    table: RoutingTable,
    model: str,
    in_flight: Mapping[str, int],
    now_ms: float,
    *,
    resting_until_ms: Mapping[str, float] | None = None,
    tried: Sequence[str] = (),
) -> Decision:
    """Choose the backend with the smallest share of its limit in use, then the cheapest.

    `in_flight` holds the exact number of calls each backend is serving; `resting_until_ms` when a
    backend that asked for rest may be called again; `tried` the backends this call failed on already.
    Raises ModelUnknown.
    """
    resting = resting_until_ms or {}
    backends = table.backends_of(model)
    candidates = tuple(
        Candidate(
            backend.name,
            (in_flight.get(backend.name, 0) / backend.limit, float(backend.prices.rank_usd)),
            _refusal(backend, in_flight.get(backend.name, 0), now_ms, resting, tried),
        )
        for backend in backends
    )
    free = [candidate for candidate in candidates if not candidate.refused]
    if free:
        best = min(free, key=lambda candidate: candidate.score)
        return Decision(model, candidates, best.backend, _praise(best, len(free)))
    return Decision(
        model,
        candidates,
        None,
        "; ".join(f"{candidate.backend} {candidate.refused}" for candidate in candidates),
        retry_at_ms=min(
            (
                resting[backend.name]
                for backend in backends
                if backend.name not in tried and resting.get(backend.name, 0.0) > now_ms
            ),
            default=None,
        ),
        hopeless=all(backend.name in tried for backend in backends),
    )


def _refusal(
    backend: BackendSpec,
    calls: int,
    now_ms: float,
    resting: Mapping[str, float],
    tried: Sequence[str],
) -> str:
    if backend.name in tried:
        return "was tried already"
    if (until_ms := resting.get(backend.name, 0.0)) > now_ms:
        return f"asked to rest for another {until_ms - now_ms:.0f} ms"
    if calls >= backend.limit:
        return f"is at its limit of {backend.limit}"
    return ""


def _praise(best: Candidate, free: int) -> str:
    if free == 1:
        return "the only backend that can take the call"
    load, price = best.score
    return (
        f"least load ({load:.0%} of its limit), then price ({price:g} USD for a million in and out)"
    )
