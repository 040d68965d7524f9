"""Reads an unchanged LiteLLM configuration: `model_list`, `router_settings`, `litellm_settings`.

Each entry of the list is a backend; entries with the same `model_name` serve one logical model.
Entries whose provider cannot be reached here (`providers.py`) are skipped, and fields without a
meaning here are ignored; neither is an error, and both are remembered so that the gateway can
report them.
"""

from decimal import Decimal
from typing import Any

from hocket.gateway.core.budgets.price import Prices, per_million
from hocket.gateway.core.config.builder import ConfigBuilder
from hocket.gateway.core.config.fields import Fields, checked_prices, wrong
from hocket.gateway.core.config.providers import AZURE, PROVIDERS, provider_of, reached
from hocket.gateway.core.config.table import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_MS,
    BackendSpec,
    Choose,
    ModelSpec,
    SkippedEntry,
)
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.routing.breaker import USUAL, BreakerRule
from hocket.schemas.checks.faults import Faults

STRATEGIES: dict[str, Choose] = {
    "simple-shuffle": "load",
    "least-busy": "load",
    "usage-based-routing": "load",
    "usage-based-routing-v2": "load",
    "latency-based-routing": "latency",
    "cost-based-routing": "price",
}

MAX_RETRIES = 10
WILDCARD = "*"
"""In LiteLLM, a name with it serves every model that fits; here, models are named one by one."""

_SECTIONS = frozenset({"model_list", "router_settings", "litellm_settings"})
_ENTRY = frozenset({"model_name", "litellm_params", "model_info"})
_PARAMS = frozenset(
    {
        "model",
        "api_base",
        "base_url",
        "api_key",
        "timeout",
        "max_parallel_requests",
        "region_name",
        "allowed_openai_params",
        "custom_llm_provider",
    }
)
_AZURE_PARAMS = frozenset({"api_version", "azure_ad_token"})
_PRICES = frozenset(
    {
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "cache_creation_input_token_cost",
        "input_cost_per_request",
    }
)
_INFO = frozenset({"id"})
_ROUTER = frozenset(
    {
        "model_group_alias",
        "routing_strategy",
        "num_retries",
        "timeout",
        "fallbacks",
        "allowed_fails",
        "cooldown_time",
    }
)
_SETTINGS = frozenset({"num_retries", "request_timeout", "fallbacks"})


def read(section: Fields, builder: ConfigBuilder) -> None:
    """Read a whole configuration into a builder; raise RoutingInvalid."""
    router = section.root("router_settings")
    settings = section.root("litellm_settings")
    timeout_ms = settings.duration_ms("request_timeout", DEFAULT_TIMEOUT_MS, scale=1000)
    timeout_ms = router.duration_ms("timeout", timeout_ms, scale=1000)
    rule = _breaker(router)
    backends: dict[str, list[BackendSpec]] = {}
    faults = Faults(RoutingInvalid)
    for index, item in enumerate(section.raw("model_list")):
        with faults.part():
            entry = section.of(item, f"model_list[{index}]")
            _read_entry(entry, rule, timeout_ms, backends, builder)
    faults.check()
    _read_models(backends, router, settings, builder)
    builder.without_effect += router.others(_ROUTER)
    builder.without_effect += settings.others(_SETTINGS)
    for name in section:
        if name not in _SECTIONS:
            builder.without_effect += _named(str(name), section.raw(name))


def _read_entry(
    entry: Fields,
    rule: BreakerRule,
    timeout_ms: float,
    backends: dict[str, list[BackendSpec]],
    builder: ConfigBuilder,
) -> None:
    params = entry.of(entry.raw("litellm_params"), entry.at("litellm_params"))
    info = entry.under("model_info")
    model = entry.name("model_name")
    if WILDCARD in model:
        builder.without_effect.append(entry.at("model_name"))
        return
    provider, target = provider_of(params)
    if provider not in PROVIDERS:
        builder.skipped.append(SkippedEntry(params.at("model"), model, provider))
        return
    served = backends.setdefault(model, [])
    name = str(info.raw("id") or f"{model}-{len(served) + 1}")
    common = _common(params, info, rule, timeout_ms)
    served.append(BackendSpec(name, **reached(provider, target, params), **common))
    known = _PARAMS | _PRICES | (_AZURE_PARAMS if provider == AZURE else frozenset())
    builder.without_effect += entry.others(_ENTRY)
    builder.without_effect += params.others(known)
    builder.without_effect += info.others(_INFO | _PRICES)


def _read_models(
    backends: dict[str, list[BackendSpec]], router: Fields, settings: Fields, builder: ConfigBuilder
) -> None:
    choose = STRATEGIES[router.choice("routing_strategy", tuple(STRATEGIES), "simple-shuffle")]
    fallbacks = _fallbacks(settings) | _fallbacks(router)
    for section in (settings, router):
        unused = [one for one in _fallbacks(section) if one not in backends]
        builder.without_effect += [f"{section.at('fallbacks')}.{one}" for one in unused]
    aliases = router.under("model_group_alias")
    for alias in aliases:
        target = aliases.raw(alias)
        if isinstance(target, dict):  # the long form: {model: ..., hidden: ...}
            builder.add_alias(
                str(alias), aliases.under(alias).text("model"), aliases.at(str(alias))
            )
        else:
            builder.add_alias(str(alias), aliases.text(alias), aliases.at(str(alias)))
    builder.models |= {model: ModelSpec(tuple(served)) for model, served in backends.items()}
    retries = _retries(router, settings)
    for model, served in backends.items():
        others = tuple(
            one for one in fallbacks.get(model, ()) if one != model and builder.may_serve(one)
        )
        enough = retries
        if retries is not None and others:  # LiteLLM falls back even after its last retry
            enough = min(max(retries, len(served)), MAX_RETRIES)
        builder.models[model] = ModelSpec(
            tuple(served), choose=choose, retries=enough, fallbacks=others
        )
        builder.fallback_fields[model] = f"{router.where}.fallbacks"


def _named(section: str, value: Any) -> list[str]:
    """Return the places of the fields of a section that has no meaning here."""
    if isinstance(value, dict) and value:
        return [f"{section}.{name}" for name in value]
    return [section]


def _common(params: Fields, info: Fields, rule: BreakerRule, timeout_ms: float) -> dict[str, Any]:
    """Return the fields of a BackendSpec that do not depend on its provider."""
    return {
        "limit": params.count("max_parallel_requests", DEFAULT_LIMIT, "calls"),
        "timeout_ms": params.duration_ms("timeout", timeout_ms, scale=1000),
        "prices": _prices(params, info),
        "residency": params.tags("region_name"),
        "breaker": rule,
    }


def _prices(params: Fields, info: Fields) -> Prices:
    def price(name: str) -> Decimal | None:
        found = params.money(name)
        return info.money(name) if found is None else found

    def million(name: str) -> Decimal | None:
        found = price(name)
        return None if found is None else per_million(found)

    prices = Prices(
        million("input_cost_per_token"),
        million("output_cost_per_token"),
        million("cache_read_input_token_cost"),
        price("input_cost_per_request"),
        million("cache_creation_input_token_cost"),
    )
    return checked_prices(prices, params.where)


def _breaker(router: Fields) -> BreakerRule:
    default = USUAL
    cooldown_ms = router.duration_ms(
        "cooldown_time", default.max_open_ms, scale=1000, may_be_0=True
    )
    allowed = router.count("allowed_fails", default.failures_in_a_row, "calls", least=0)
    return BreakerRule(
        failures_in_a_row=max(allowed, 1),
        open_ms=min(default.open_ms, cooldown_ms),
        max_open_ms=cooldown_ms,
    )


def _retries(router: Fields, settings: Fields) -> int | None:
    for section in (router, settings):
        if "num_retries" in section:
            return min(section.count("num_retries", 0, "attempts", least=0), MAX_RETRIES)
    return None


def _fallbacks(settings: Fields) -> dict[str, list[str]]:
    """Return `[{model: [other, ...]}, ...]` merged into one mapping."""
    found: dict[str, list[str]] = {}
    entries: Any = settings.raw("fallbacks") or []
    cure = "Write for example `fallbacks: [{writer: [spare]}]`."
    if not isinstance(entries, list):
        raise wrong(settings.at("fallbacks"), "it is not a list", cure)
    for entry in entries:
        if not isinstance(entry, dict):
            raise wrong(settings.at("fallbacks"), "it is not a list of mappings", cure)
        for model, others in entry.items():
            if not isinstance(others, list) or not all(isinstance(one, str) for one in others):
                raise wrong(settings.at("fallbacks"), f"`{model}` has no list of models", cure)
            found.setdefault(str(model), []).extend(others)
    return found
