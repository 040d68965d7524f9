"""The routing table: logical models, the servers behind them, and the pools whose capacity they
share.

A model is served by *backends* (one served model version each), and a backend by one or more
*replicas*. A `BackendSpec` describes one replica: the unit that is connected to, counted, priced
and guarded by a breaker. A *pool* is capacity that several backends share, for example the GPUs
that serve both a writer and an embedder; a backend that names no pool has its own. Everything is
frozen: a reload builds a new table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import SecretStr

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.calls.cascade import Cascade
from hocket.gateway.core.calls.hedging import HedgeRule
from hocket.gateway.core.calls.request_content import WORST_OUTPUT_TOKENS
from hocket.gateway.core.errors import ModelSkipped, ModelUnknown
from hocket.gateway.core.protocols.openai_api import LimitField
from hocket.gateway.core.protocols.triton import TritonOptions
from hocket.gateway.core.routing.breaker import USUAL, BreakerRule
from hocket.gateway.core.routing.locality import PrefixCache
from hocket.gateway.core.warming.warm_rule import WarmRule

DEFAULT_LIMIT = 64
"""The default number of parallel calls per replica."""
DEFAULT_TIMEOUT_MS = 600_000.0
"""The default time limit of one call to a backend."""
MAX_WAITING = 1_024
"""The most calls that may wait for a place in one pool."""
INTERACTIVE_SHARE = 0.125
"""The share of a pool's places, and of each of its replicas' places, reserved for interactive calls."""
LEAST_TO_RESERVE = 4
"""With fewer places than this, none is reserved."""
FAST_MS = 200.0
"""A call expected to take less than this counts as fast."""

BackendKind = Literal["openai", "anthropic", "function", "triton"]
Hosting = Literal["dedicated", "serverless"]
"""Whose machine a backend runs on: our own, paid by the hour, or a provider's, paid by the call."""
Mode = Literal["dedicated", "serverless", "auto"]
"""Which backends a model uses; `auto` overflows from dedicated to serverless ones."""
Choose = Literal["load", "price", "latency", "locality"]
"""How one of the replicas that can take a call is chosen."""
WarmTier = Literal["hot", "warm", "cold"]
KeyHeader = Literal["authorization", "api-key"]
"""Where the key goes: `Authorization: Bearer KEY`, or `api-key: KEY` (Azure)."""


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """One replica of a served model version: where it is, how many calls it takes, and what it
    costs.

    `target` is the model's name at its server, or `module:function`. `quality` (0 to 1) is compared
    with the quality floor of calls; `residency` says where the data of a call may end up. `key` is
    unique over all replicas of all backends. `stops_on_disconnect` means that the engine stops
    generating, and charging, when its connection is closed.
    """

    name: str
    kind: BackendKind
    target: str
    base_url: str = ""
    api_key: SecretStr | None = None
    key_header: KeyHeader = "authorization"
    api_version: str = ""
    """The query parameter `api-version`; omitted if empty."""
    limit: int = DEFAULT_LIMIT
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    prices: Prices = field(default_factory=Prices)
    replica: str = ""
    hosting: Hosting = "dedicated"
    pool: str = ""
    quality: float | None = None
    warm_tier: WarmTier = "hot"
    warm: WarmRule | None = None
    labels: tuple[tuple[str, str], ...] = ()
    residency: frozenset[str] = frozenset()
    breaker: BreakerRule = USUAL
    prefix_cache: PrefixCache | None = None
    usage_in_stream: bool = True
    max_tokens_field: LimitField | None = None
    """The field in which it takes the most tokens of an answer; None if its URL tells."""
    max_output_tokens: int | None = None
    """The limit of an answer to a call that sets none."""
    pass_fields: frozenset[str] = frozenset()
    """Fields of OpenAI-style bodies that are forwarded although they may select a model or a price."""
    stops_on_disconnect: bool = False
    triton: TritonOptions = field(default_factory=TritonOptions)
    key: str = field(init=False)
    reads_on: bool = field(init=False)
    """Whether a reply is read to its end after its caller has gone,
    because it is charged for anyway."""
    rank_usd: float = field(init=False)
    """The number by which backends are compared on price."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank_usd", float(self.prices.rank_usd))
        object.__setattr__(
            self, "key", f"{self.name}/{self.replica}" if self.replica else self.name
        )
        object.__setattr__(self, "pool", self.pool or self.name)
        charged = self.kind != "function" and self.prices.charged
        object.__setattr__(self, "reads_on", charged and not self.stops_on_disconnect)

    @property
    def answer_tokens(self) -> int:
        """Return how many tokens an answer may have if its call sets no limit, without its thinking."""
        return self.max_output_tokens or WORST_OUTPUT_TOKENS

    def limits(self, *, is_bounded: bool) -> bool:
        """Return whether a call that sets no limit gets one here: if the configuration has one, or the
        most that the call could cost is reserved and what it writes costs some."""
        costs = is_bounded and bool(self.prices.output_usd_per_mtok)
        return self.max_output_tokens is not None or costs

    @property
    def sends_fields(self) -> bool:
        """Return whether it receives the fields of an OpenAI-style body, unchanged or translated."""
        return self.kind in ("openai", "anthropic")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A logical model: its replicas in configuration order, and how one is chosen.

    `fallbacks` are models whose replicas are asked if none of its own can be. `retries` is how many
    attempts a call gets after its first: on other replicas and, once all were asked, on the same
    ones again after a pause. None means each other replica once, up to three. A model with a
    `cascade` has no replicas of its own.
    """

    backends: tuple[BackendSpec, ...]
    mode: Mode = "auto"
    choose: Choose = "load"
    min_quality: float = 0.0
    fallbacks: tuple[str, ...] = ()
    retries: int | None = None
    hedge: HedgeRule | None = None
    cascade: Cascade | None = None

    @property
    def spills(self) -> bool:
        """Return whether calls overflow to serverless backends when dedicated ones are full."""
        return self.mode == "auto" and len({one.hosting for one in self.backends}) > 1

    @property
    def block_tokens(self) -> int:
        """Return the block size of the prefix caches in tokens; 1 if there are none."""
        return next((one.prefix_cache.block_tokens for one in self.backends if one.prefix_cache), 1)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Places that backends share.

    `reserved_fast` of them serve only fast calls, those expected to take less than `fast_ms`. While
    interactive calls arrive, other calls leave `interactive_share` of the places free.
    """

    limit: int
    reserved_fast: int = 0
    fast_ms: float = FAST_MS
    max_waiting: int = MAX_WAITING
    interactive_share: float = INTERACTIVE_SHARE

    def reserved_of(self, places: int) -> int:
        """Return how many of `places` are reserved for interactive calls."""
        if places < LEAST_TO_RESERVE or not self.interactive_share:
            return 0
        return max(1, int(places * self.interactive_share))


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """An entry of LiteLLM's list that was skipped because its provider cannot be reached here."""

    field: str
    model: str
    provider: str


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Logical models, their aliases, and the pools of their backends.

    `without_effect` names configured LiteLLM fields that do nothing here, and `skipped` the entries
    that became no backend. `unserved` maps the models (and aliases) whose entries were all skipped
    to their providers.
    """

    models: Mapping[str, ModelSpec]
    aliases: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, PoolSpec] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    unserved: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own: dict[str, int] = {}
        for spec in self.backends():
            if spec.pool not in self.pools:
                own[spec.pool] = own.get(spec.pool, 0) + spec.limit
        pools = {name: PoolSpec(limit) for name, limit in own.items()} | dict(self.pools)
        object.__setattr__(self, "pools", pools)

    def model(self, name: str) -> ModelSpec:
        """Return the model of a name or alias; raise ModelUnknown or ModelSkipped."""
        found = self.models.get(self.aliases.get(name, name))
        if found is None and name in self.unserved:
            raise ModelSkipped(model=name, providers=self.unserved[name])
        if found is None:
            raise ModelUnknown(model=name, known=", ".join(self.names()))
        return found

    def canonical(self, name: str) -> str:
        """Return a model's own name, given that name or an alias."""
        return self.aliases.get(name, name)

    def models_with(self, spec: BackendSpec) -> frozenset[str]:
        """Return the names of the models that a replica serves: its own, though a call may have come
        to it as a fallback; none if it is not in the table."""
        return frozenset(
            name
            for name, model in self.models.items()
            if any(one.key == spec.key for one in model.backends)
        )

    def backends_of(self, model: str) -> tuple[BackendSpec, ...]:
        """Return the replicas behind a model or alias; raise ModelUnknown."""
        return self.model(model).backends

    def serving(self, model: str) -> tuple[BackendSpec, ...]:
        """Return the replicas that may serve a model or alias, either its own or those of its
        cascade's stages; raise ModelUnknown."""
        found = self.model(model)
        if found.cascade is None:
            return found.backends
        return tuple(spec for stage in found.cascade.stages for spec in self.model(stage).backends)

    def backends(self) -> tuple[BackendSpec, ...]:
        """Return every replica of every model."""
        return tuple(spec for model in self.models.values() for spec in model.backends)

    def names(self) -> tuple[str, ...]:
        """Return the names of all models and aliases, sorted."""
        return tuple(sorted({*self.models, *self.aliases}))
