"""The routing part of the configuration, read into a RoutingTable.

Two forms are accepted: Hocket's own (`models:` maps each model to an alias or to backends, with
`pools:` beside it), and LiteLLM's `model_list` unchanged (`litellm.py`). Anything unusable raises
RoutingInvalid, which names the field and the cure. LiteLLM fields that mean nothing here are listed
in `RoutingTable.without_effect`; unknown fields of Hocket's own form are refused. Values
`os.environ/NAME` are looked up in the given environment.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.calls.cascade import (
    MAX_EXPRESSION_CHARS,
    MAX_STAGES,
    Cascade,
    cascade_of,
    unknown_names,
)
from hocket.gateway.core.calls.hedging import HedgeRule
from hocket.gateway.core.calls.request_content import MAX_OUTPUT_TOKENS
from hocket.gateway.core.config import litellm
from hocket.gateway.core.config.builder import EXTRACTIVE, ConfigBuilder
from hocket.gateway.core.config.fields import (
    HTTP_SCHEMES,
    PRICE_FIELDS,
    Fields,
    check_name,
    checked_prices,
    wrong,
)
from hocket.gateway.core.config.providers import ANTHROPIC, PROVIDERS
from hocket.gateway.core.config.table import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_MS,
    FAST_MS,
    INTERACTIVE_SHARE,
    MAX_WAITING,
    BackendKind,
    BackendSpec,
    Choose,
    KeyHeader,
    Mode,
    ModelSpec,
    PoolSpec,
    RoutingTable,
)
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.protocols.triton import TRITON_FIELDS, TritonOptions
from hocket.gateway.core.routing.breaker import NEVER, USUAL, BreakerRule
from hocket.gateway.core.routing.locality import PrefixCache
from hocket.gateway.core.warming.warm_rule import read_rule
from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import InvalidInput

__all__ = ["EXTRACTIVE", "built_in_table", "parse"]

MAX_RETRIES = 10
MOST_INTERACTIVE_SHARE = 0.5
MAX_REPLICAS = 1_000
MAX_CACHED_TOKENS = 10**9
MIN_BLOCK_TOKENS = 16
TRITON_SCHEMES = (*HTTP_SCHEMES, "grpc://", "grpcs://")

_MODEL_FIELDS = frozenset(
    {
        "alias",
        "backends",
        "cascade",
        "mode",
        "choose",
        "min_quality",
        "fallbacks",
        "retries",
        "breaker",
        "hedge",
    }
)
_BACKEND_FIELDS = frozenset(
    {
        "name",
        "kind",
        "base_url",
        "api_key",
        "model",
        "function",
        "replicas",
        "limit",
        "max_concurrency",
        "timeout_ms",
        "prices",
        "mode",
        "pool",
        "quality",
        "warm",
        "warm_tier",
        "labels",
        "residency",
        "breaker",
        "prefix_cache",
        "triton",
        "key_header",
        "api_version",
        "max_tokens_field",
        "max_output_tokens",
        "usage_in_stream",
        "pass_fields",
        "stops_on_disconnect",
    }
)
_OPENAI_ONLY = ("key_header", "api_version", "max_tokens_field")
_REPLICA_FIELDS = frozenset({"name", "base_url", "api_key", "limit", "max_concurrency"})
_POOL_FIELDS = frozenset(
    {"max_concurrency", "reserved_fast", "fast_ms", "max_waiting", "interactive_share"}
)
_CACHE_FIELDS = frozenset({"tokens", "block_tokens", "prefill_tokens_per_s"})
_BREAKER_FIELDS = frozenset(
    {
        "window_ms",
        "min_calls",
        "failures_in_a_row",
        "failure_rate",
        "slow_rate",
        "slow_ms",
        "open_ms",
        "max_open_ms",
    }
)


def built_in_table() -> RoutingTable:
    """Return the table of a gateway without configuration: the extractive model and its aliases."""
    return ConfigBuilder().table()


def parse(section: Any, environment: Mapping[str, str], pools: Any = None) -> RoutingTable:
    """Return the routing table of a `models:` section and a `pools:` section; raise RoutingInvalid."""
    builder, faults = ConfigBuilder(), Faults(RoutingInvalid)
    with faults.part():
        if isinstance(section, list):
            litellm.read(Fields({"model_list": section}, "models", environment), builder)
        elif isinstance(section, dict) and isinstance(section.get("model_list"), list):
            litellm.read(Fields(section, "models", environment), builder)
        elif isinstance(section, dict):
            _read_models(Fields(section, "models", environment), builder)
        elif section is not None:
            cure = "Make it a mapping from model name to backends, or LiteLLM's `model_list`."
            raise wrong("models", f"it is a {type(section).__name__}", cure)
    are_models_known = not faults or bool(builder.refused)
    with faults.part():
        if pools is not None:
            _read_pools(Fields(pools, "pools", environment), builder)
    if are_models_known:
        with faults.part():
            table = builder.table()
    faults.check()
    return table


def _read_models(models: Fields, builder: ConfigBuilder) -> None:
    faults = Faults(RoutingInvalid)
    for name in models:
        builder.refused.add(str(name))
        with faults.part():
            _read_model(models, name, builder)
            builder.refused.discard(str(name))
    faults.check()


def _read_model(models: Fields, name: Any, builder: ConfigBuilder) -> None:
    where = models.at(str(name))
    if not isinstance(name, str) or not name:
        raise wrong(where, "the model's name is not text", "Put quotes around it.")
    check_name(name, where)
    if isinstance(models.raw(name), str):
        builder.add_alias(name, models.raw(name), where)
        return
    model = models.under(name)
    if sum(kind in model for kind in ("alias", "backends", "cascade")) != 1:
        model.only(_MODEL_FIELDS)  # such as a misspelled one of them
        reason = "it needs one of `alias`, `backends` and `cascade`"
        raise wrong(where, reason, "Use exactly one.")
    if "backends" not in model:
        model.only(_MODEL_FIELDS)
    if "cascade" in model:
        model.only({"cascade"})
        builder.models[name] = ModelSpec((), cascade=_cascade(model.under("cascade")))
        builder.cascade_fields[name] = model.under("cascade").at("models")
    elif "alias" in model:
        model.only({"alias"})
        builder.add_alias(name, model.text("alias"), model.at("alias"))
    else:
        builder.fallback_fields[name] = model.at("fallbacks")
        faults = Faults(RoutingInvalid)
        fallbacks: tuple[str, ...] = faults.read(lambda: _fallbacks(model), ())
        builder.fallbacks[name] = fallbacks
        found = faults.read(lambda: _model(name, model, fallbacks), None)
        faults.check()
        assert found is not None, name
        builder.models[name] = found


def _fallbacks(model: Fields) -> tuple[str, ...]:
    fallbacks = model.raw("fallbacks") or []
    if not isinstance(fallbacks, list) or not all(isinstance(one, str) for one in fallbacks):
        cure = "List the models to use when no backend of this one can."
        raise wrong(model.at("fallbacks"), "it is not a list of models", cure)
    return tuple(fallbacks)


def _model(name: str, model: Fields, fallbacks: tuple[str, ...]) -> ModelSpec:
    faults = Faults(RoutingInvalid)
    with faults.part():
        model.only(_MODEL_FIELDS)
    backends: tuple[BackendSpec, ...] = faults.read(lambda: _all_backends(name, model), ())
    caches = {one.prefix_cache.block_tokens for one in backends if one.prefix_cache}
    choose: Choose = "locality" if caches else "load"
    mode: Mode = faults.read(
        lambda: model.choice("mode", ("auto", "dedicated", "serverless"), "auto"), "auto"
    )
    chosen: Choose = faults.read(
        lambda: model.choice("choose", ("load", "price", "latency", "locality"), choose), choose
    )
    quality = faults.read(lambda: model.number("min_quality", 0.0, 0.0, 1.0), 0.0)
    retries = faults.read(lambda: _retries(model), None)
    hedge = faults.read(lambda: _hedge(model), None)
    faults.check()
    return ModelSpec(
        backends,
        mode=mode,
        choose=chosen,
        min_quality=quality,
        fallbacks=fallbacks,
        retries=retries,
        hedge=hedge,
    )


def _all_backends(name: str, model: Fields) -> tuple[BackendSpec, ...]:
    """Return the replicas of all backends of a model."""
    backends: list[BackendSpec] = []
    faults = Faults(RoutingInvalid)
    rule = faults.read(lambda: _breaker(model, USUAL), USUAL)
    for index, (where, entry) in enumerate(model.items("backends", "List at least one.")):
        with faults.part():
            backends += _backends(model.of(entry, where), f"{name}-{index + 1}", rule)
    faults.check()
    caches = {one.prefix_cache.block_tokens for one in backends if one.prefix_cache}
    if len(caches) > 1:
        cure = "Give the backends of a model the same `block_tokens`."
        raise wrong(model.at("backends"), "their prefix caches differ in `block_tokens`", cure)
    return tuple(backends)


def _cascade(found: Fields) -> Cascade:
    found.only({"models", "accept"})
    stages = found.raw("models")
    if (
        not isinstance(stages, list)
        or not all(isinstance(one, str) for one in stages)
        or not 2 <= len(stages) <= MAX_STAGES
        or len(set(stages)) < len(stages)
    ):
        cure = f"List 2 to {MAX_STAGES} different models, the cheapest first."
        raise wrong(found.at("models"), "it is not a list of models", cure)
    accept, where = found.text("accept"), found.at("accept")
    if len(accept) > MAX_EXPRESSION_CHARS:
        raise wrong(where, "it is too long", f"Use up to {MAX_EXPRESSION_CHARS} characters.")
    try:
        unknown = unknown_names(accept, where)
        cascade = cascade_of(tuple(stages), accept, where)
    except InvalidInput as error:
        raise wrong(
            where, error.fields["reason"], "Write for example `answer.text != ''`."
        ) from None
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(unknown))
        raise wrong(where, f"it reads {names}", "Use only `answer` and `call`.")
    return cascade


def _hedge(model: Fields) -> HedgeRule | None:
    if "hedge" not in model or model.raw("hedge") is False:
        return None
    if model.raw("hedge") is True:
        return HedgeRule()
    found = model.under("hedge")
    found.only({"quantile", "min_ms", "share", "burst", "tools"})
    usual = HedgeRule()
    return HedgeRule(
        found.number("quantile", usual.quantile, 0.5, 0.999),
        found.duration_ms("min_ms", usual.min_ms),
        found.number("share", usual.share, 0.001, 1.0),
        found.number("burst", usual.burst, 1.0, 1_000.0),
        found.flag("tools", usual.tools),
    )


def _retries(model: Fields) -> int | None:
    if "retries" not in model:
        return None
    retries = model.count("retries", 0, "attempts", least=0)
    if retries > MAX_RETRIES:
        raise wrong(model.at("retries"), "there are too many", f"Use 0 to {MAX_RETRIES} attempts.")
    return retries


def _backends(entry: Fields, default_name: str, rule: BreakerRule) -> list[BackendSpec]:
    """Return the replicas of one backend."""
    entry.only(_BACKEND_FIELDS)
    name = entry.name("name") if "name" in entry else default_name
    kind: BackendKind = entry.choice(
        "kind",
        ("openai", "anthropic", "function", "triton"),
        "function" if "function" in entry else "openai",
    )
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "limit": _limit(entry, DEFAULT_LIMIT),
        "timeout_ms": entry.duration_ms("timeout_ms", DEFAULT_TIMEOUT_MS),
        "prices": _prices(entry),
        "hosting": entry.choice("mode", ("dedicated", "serverless"), "dedicated"),
        "pool": entry.text("pool") if "pool" in entry else "",
        "quality": entry.number("quality", 0.0, 0.0, 1.0) if "quality" in entry else None,
        "warm_tier": entry.choice("warm_tier", ("hot", "warm", "cold"), "hot"),
        "warm": read_rule(entry, kind),
        "labels": entry.labels("labels"),
        "residency": entry.tags("residency"),
        "breaker": _breaker(entry, rule),
        "prefix_cache": _prefix_cache(entry),
        "max_output_tokens": _output_limit(entry),
        "usage_in_stream": entry.flag("usage_in_stream", True),
        "pass_fields": entry.tags("pass_fields"),
        "stops_on_disconnect": entry.flag("stops_on_disconnect", False),
    }
    return _KINDS[kind](entry, common)


def _function(entry: Fields, common: dict[str, Any]) -> list[BackendSpec]:
    for other in ("base_url", "api_key", "model", "replicas", "triton", *_OPENAI_ONLY):
        if other in entry:
            raise wrong(entry.at(other), "a function has none", f"Remove `{other}`.")
    target = entry.text("function")
    module, colon, name = target.partition(":")
    if not (colon and name.isidentifier() and all(p.isidentifier() for p in module.split("."))):
        cure = "Write for example `my.models:echo`."
        raise wrong(entry.at("function"), f"`{target}` is not `module:function`", cure)
    return [BackendSpec(**common, target=target)]


def _openai(entry: Fields, common: dict[str, Any]) -> list[BackendSpec]:
    if "triton" in entry:
        raise wrong(entry.at("triton"), "it is not for this kind", "Write `kind: triton`.")
    key_header: KeyHeader = entry.choice(
        "key_header", ("authorization", "api-key"), "authorization"
    )
    version = entry.name("api_version") if "api_version" in entry else ""
    reached = {"key_header": key_header, "api_version": version}
    if "max_tokens_field" in entry:
        names = ("max_tokens", "max_completion_tokens")
        reached["max_tokens_field"] = entry.choice("max_tokens_field", names, "max_tokens")
    return _servers(entry, common | reached, HTTP_SCHEMES)


def _anthropic(entry: Fields, common: dict[str, Any]) -> list[BackendSpec]:
    _only_openais(entry)
    if "triton" in entry:
        raise wrong(entry.at("triton"), "it is not for this kind", "Write `kind: triton`.")
    if "base_url" in entry or "replicas" in entry:
        return _servers(entry, common, HTTP_SCHEMES)
    base_url = PROVIDERS[ANTHROPIC].base_url
    return _servers(entry.with_default("base_url", base_url), common, HTTP_SCHEMES)


def _only_openais(entry: Fields) -> None:
    for other in _OPENAI_ONLY:
        if other in entry:
            raise wrong(entry.at(other), "it is not for this kind", "Write `kind: openai`.")


def _triton(entry: Fields, common: dict[str, Any]) -> list[BackendSpec]:
    _only_openais(entry)
    options = entry.under("triton")
    options.only(TRITON_FIELDS)
    texts = {name: options.text(name) for name in TRITON_FIELDS if name in options}
    return _servers(entry, common | {"triton": TritonOptions(**texts)}, TRITON_SCHEMES)


def _servers(entry: Fields, common: dict[str, Any], schemes: tuple[str, ...]) -> list[BackendSpec]:
    """Return the replicas of a backend reached by URL."""
    if "function" in entry:
        raise wrong(entry.at("function"), "an HTTP backend has none", "Remove it, or `base_url`.")
    target, api_key = entry.text("model"), entry.secret("api_key")
    versioned = "api_version" in common
    if "replicas" not in entry:
        base_url = entry.url("base_url", schemes, versioned=versioned)
        return [BackendSpec(**common, target=target, api_key=api_key, base_url=base_url)]
    if "base_url" in entry:
        cure = "Remove it; each replica has its own."
        raise wrong(entry.at("base_url"), "`replicas` is set as well", cure)
    found = entry.items("replicas", "List the servers' URLs.")
    if len(found) > MAX_REPLICAS:
        raise wrong(entry.at("replicas"), "there are too many", f"List up to {MAX_REPLICAS}.")
    specs: list[BackendSpec] = []
    for index, (where, one) in enumerate(found):
        replica = entry.of({"base_url": one} if isinstance(one, str) else one, where)
        replica.only(_REPLICA_FIELDS)
        fields = common | {
            "replica": replica.name("name") if "name" in replica else str(index + 1),
            "limit": _limit(replica, common["limit"]),
            "api_key": replica.secret("api_key") or api_key,
            "base_url": replica.url("base_url", schemes, versioned=versioned),
        }
        specs.append(BackendSpec(**fields, target=target))
    return specs


_KINDS: dict[BackendKind, Callable[[Fields, dict[str, Any]], list[BackendSpec]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "function": _function,
    "triton": _triton,
}


def _output_limit(entry: Fields) -> int | None:
    if entry.raw("max_output_tokens") is None:
        return None
    return entry.count("max_output_tokens", 1, "tokens", most=MAX_OUTPUT_TOKENS)


def _limit(entry: Fields, default: int) -> int:
    """Return `max_concurrency`, for which `limit` is a short form."""
    if "limit" in entry and "max_concurrency" in entry:
        raise wrong(entry.at("limit"), "it means the same as `max_concurrency`", "Remove one.")
    name = "max_concurrency" if "max_concurrency" in entry else "limit"
    return entry.count(name, default, "calls")


def _prices(entry: Fields) -> Prices:
    prices = entry.under("prices")
    prices.only(PRICE_FIELDS)
    return checked_prices(
        Prices(**{name: prices.money(name) for name in PRICE_FIELDS}), prices.where
    )


def _breaker(entry: Fields, default: BreakerRule) -> BreakerRule:
    if "breaker" not in entry:
        return default
    if entry.raw("breaker") is False:
        return NEVER
    found = entry.under("breaker")
    found.only(_BREAKER_FIELDS)
    return BreakerRule(
        window_ms=found.duration_ms("window_ms", default.window_ms),
        min_calls=found.count("min_calls", default.min_calls, "calls"),
        failures_in_a_row=found.count("failures_in_a_row", default.failures_in_a_row, "calls"),
        failure_rate=found.number("failure_rate", default.failure_rate, 0.01, 1.0),
        slow_rate=found.number("slow_rate", default.slow_rate, 0.01, 1.0),
        slow_ms=found.duration_ms("slow_ms", 0.0) or default.slow_ms,
        open_ms=found.duration_ms("open_ms", default.open_ms),
        max_open_ms=found.duration_ms("max_open_ms", default.max_open_ms),
    )


def _prefix_cache(entry: Fields) -> PrefixCache | None:
    if "prefix_cache" not in entry:
        return None
    found = entry.under("prefix_cache")
    found.only(_CACHE_FIELDS)
    usual = PrefixCache()
    return PrefixCache(
        found.count("tokens", usual.tokens, "tokens", most=MAX_CACHED_TOKENS),
        found.count("block_tokens", usual.block_tokens, "tokens", least=MIN_BLOCK_TOKENS),
        found.number("prefill_tokens_per_s", usual.prefill_tokens_per_s, 1.0, 1e9),
    )


def _read_pools(pools: Fields, builder: ConfigBuilder) -> None:
    faults = Faults(RoutingInvalid)
    for name in pools:
        with faults.part():
            builder.pools[str(name)] = _pool(pools.under(str(name)))
    faults.check()


def _pool(pool: Fields) -> PoolSpec:
    pool.only(_POOL_FIELDS)
    if "max_concurrency" not in pool:
        cure = "Set `max_concurrency` to the number of calls it takes at once."
        raise wrong(pool.at("max_concurrency"), "it is missing", cure)
    limit = pool.count("max_concurrency", 1, "calls")
    reserved = pool.count("reserved_fast", _reserved(limit), "places", least=0)
    if reserved >= limit:
        cure = f"Use 0 to {limit - 1} of its {limit} places."
        raise wrong(pool.at("reserved_fast"), "it leaves no room for others", cure)
    return PoolSpec(
        limit,
        reserved,
        pool.duration_ms("fast_ms", FAST_MS),
        pool.count("max_waiting", MAX_WAITING, "calls", least=0),
        pool.number("interactive_share", INTERACTIVE_SHARE, 0.0, MOST_INTERACTIVE_SHARE),
    )


def _reserved(limit: int) -> int:
    """Return the places that a pool reserves for fast calls by default: an eighth,
    if it has enough places."""
    return max(1, limit // 8) if limit >= 4 else 0
