"""The section `models:` of the configuration, read into a RoutingTable.

Two forms are understood: Hocket's own (a mapping from model to alias or backends) and LiteLLM's
`model_list` as it is. What cannot be used raises RoutingInvalid naming the field and the cure; LiteLLM
fields without a meaning here are listed in `RoutingTable.without_effect`, those of Hocket's own form
are refused. Values `os.environ/NAME` are looked up in the environment that is handed in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import SecretStr

from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.price import MAX_DECIMALS, MAX_USD, Prices, believable, per_million
from hocket.gateway.core.table import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_MS,
    BackendKind,
    BackendSpec,
    ModelSpec,
    RoutingTable,
)

EXTRACTIVE = "hocket-extractive"
EXTRACTIVE_FUNCTION = "hocket.workers.extractive.model:complete"
"""Named here and never imported: gateway and workers do not know each other's code."""
BUILT_IN_ALIASES = {"planner": EXTRACTIVE, "writer": EXTRACTIVE}

ENVIRONMENT_PREFIX = "os.environ/"
MAX_LIMIT = 100_000
MAX_TIMEOUT_MS = 86_400_000.0
MAX_DIGITS = 28
"""Digits of a price, wherever its point is."""

PROVIDER_BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together_ai": "https://api.together.xyz/v1",
}
"""LiteLLM provider prefixes whose OpenAI-compatible endpoint is known."""
SELF_HOSTED_PROVIDERS = frozenset(
    {
        "hosted_vllm",
        "vllm",
        "openai_like",
        "custom_openai",
        "litellm_proxy",
        "lm_studio",
        "llamafile",
        "nvidia_nim",
    }
)
"""LiteLLM provider prefixes that mean an OpenAI-compatible endpoint at `api_base`."""


def built_in_table() -> RoutingTable:
    """Return the table of a gateway without configuration: the extractive model and its aliases."""
    return _table(_Draft())


def parse(section: Any, environment: Mapping[str, str]) -> RoutingTable:
    """Return the routing table of a `models:` section; raise RoutingInvalid.

    The built-in model stays available, and its aliases where the section does not define those names.
    """
    draft = _Draft()
    if isinstance(section, list):
        _read_litellm({"model_list": section}, environment, draft)
    elif isinstance(section, dict) and isinstance(section.get("model_list"), list):
        _read_litellm(section, environment, draft)
    elif isinstance(section, dict):
        _read_own(section, environment, draft)
    elif section is not None:
        raise RoutingInvalid(
            field="models",
            reason=f"it is a {type(section).__name__}",
            cure="Make it a mapping from model name to backends, or LiteLLM's `model_list`.",
        )
    return _table(draft)


@dataclass
class _Draft:
    """What was read so far."""

    models: dict[str, list[BackendSpec]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    alias_fields: dict[str, str] = field(default_factory=dict)
    without_effect: list[str] = field(default_factory=list)

    def add_alias(self, name: str, target: str, where: str) -> None:
        self.aliases[name] = target
        self.alias_fields[name] = where


def _table(draft: _Draft) -> RoutingTable:
    models = {name: tuple(backends) for name, backends in draft.models.items()}
    if EXTRACTIVE not in models and EXTRACTIVE not in draft.aliases:
        models[EXTRACTIVE] = (_EXTRACTIVE_BACKEND,)
        built_in = {k: v for k, v in BUILT_IN_ALIASES.items() if k not in models}
    else:
        built_in = {}
    for alias, target in draft.aliases.items():
        if target not in models:
            raise RoutingInvalid(
                field=draft.alias_fields[alias],
                reason=f"it points to `{target}`, which is not a model with backends",
                cure=f"Use one of: {', '.join(sorted(models))}.",
            )
    _check_names(models)
    return RoutingTable(
        {name: ModelSpec(backends) for name, backends in models.items()},
        {**built_in, **draft.aliases},
        without_effect=tuple(draft.without_effect),
    )


def _check_names(models: Mapping[str, tuple[BackendSpec, ...]]) -> None:
    seen: dict[str, str] = {}
    for model, backends in models.items():
        for backend in backends:
            if backend.name in seen:
                raise RoutingInvalid(
                    field=f"models.{model}",
                    reason=f"the backend name `{backend.name}` is taken by `{seen[backend.name]}`",
                    cure="Give each backend a `name` of its own.",
                )
            seen[backend.name] = model


# ---- Hocket's own form ----------------------------------------------------------------------

_OWN_FIELDS = frozenset(
    {"name", "kind", "base_url", "api_key", "model", "function", "limit", "timeout_ms", "prices"}
)
_PRICE_FIELDS = ("input_usd_per_mtok", "output_usd_per_mtok", "cached_usd_per_mtok", "request_usd")


def _read_own(section: Mapping[str, Any], environment: Mapping[str, str], draft: _Draft) -> None:
    for name, entry in section.items():
        where = f"models.{name}"
        if not isinstance(name, str) or not name:
            raise _wrong(where, "the model's name is not text", "Put quotes around it.")
        if isinstance(entry, str):
            draft.add_alias(name, entry, where)
            continue
        model = _mapping(entry, where)
        _refuse_others(model, {"alias", "backends"}, where)
        if ("alias" in model) == ("backends" in model):
            raise _wrong(where, "it needs one of `alias` and `backends`", "Give exactly one.")
        if "alias" in model:
            draft.add_alias(name, _text(model, "alias", where, environment), f"{where}.alias")
            continue
        backends = model["backends"]
        if not isinstance(backends, list) or not backends:
            raise _wrong(f"{where}.backends", "it is not a list of backends", "List at least one.")
        draft.models[name] = [
            _own_backend(
                _mapping(backend, f"{where}.backends[{index}]"),
                f"{name}-{index + 1}",
                f"{where}.backends[{index}]",
                environment,
            )
            for index, backend in enumerate(backends)
        ]


def _own_backend(
    entry: Mapping[str, Any], default_name: str, where: str, environment: Mapping[str, str]
) -> BackendSpec:
    _refuse_others(entry, _OWN_FIELDS, where)
    kind = _kind(entry, where)
    name = _text(entry, "name", where, environment) if "name" in entry else default_name
    limit = _count(entry, "limit", where, DEFAULT_LIMIT)
    timeout_ms = _duration_ms(entry, "timeout_ms", where, scale=1)
    prices = _own_prices(entry, where)
    if kind == "function":
        for other in ("base_url", "api_key", "model"):
            if other in entry:
                raise _wrong(f"{where}.{other}", "a function has none", f"Remove `{other}`.")
        target = _function(_text(entry, "function", where, environment), f"{where}.function")
        return BackendSpec(name, kind, target, limit=limit, timeout_ms=timeout_ms, prices=prices)
    if "function" in entry:
        raise _wrong(f"{where}.function", "an HTTP backend has none", "Remove it, or `base_url`.")
    return BackendSpec(
        name,
        kind,
        _text(entry, "model", where, environment),
        base_url=_url(_text(entry, "base_url", where, environment), f"{where}.base_url"),
        api_key=_secret(entry, where, environment),
        limit=limit,
        timeout_ms=timeout_ms,
        prices=prices,
    )


def _kind(entry: Mapping[str, Any], where: str) -> BackendKind:
    kind = entry.get("kind", "function" if "function" in entry else "openai")
    if kind == "openai":
        return "openai"
    if kind == "function":
        return "function"
    raise _wrong(f"{where}.kind", f"`{kind}` is not a kind", "Use `openai` or `function`.")


def _own_prices(entry: Mapping[str, Any], where: str) -> Prices:
    prices = _mapping(entry.get("prices", {}), f"{where}.prices")
    _refuse_others(prices, frozenset(_PRICE_FIELDS), f"{where}.prices")
    read = {name: _money(prices, name, f"{where}.prices") for name in _PRICE_FIELDS}
    return _checked(Prices(**read), f"{where}.prices")


# ---- LiteLLM's form -------------------------------------------------------------------------

_LITELLM_PARAMS = frozenset(
    {"model", "api_base", "base_url", "api_key", "timeout", "max_parallel_requests"}
)
_LITELLM_PRICES = frozenset(
    {
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "input_cost_per_request",
    }
)
_LITELLM_INFO = frozenset({"id"})


def _read_litellm(
    section: Mapping[str, Any], environment: Mapping[str, str], draft: _Draft
) -> None:
    for index, item in enumerate(section["model_list"]):
        where = f"model_list[{index}]"
        entry = _mapping(item, where)
        params = _mapping(entry.get("litellm_params"), f"{where}.litellm_params")
        info = _mapping(entry.get("model_info") or {}, f"{where}.model_info")
        model = _text(entry, "model_name", where, environment)
        backends = draft.models.setdefault(model, [])
        name = str(info.get("id", f"{model}-{len(backends) + 1}"))
        backends.append(_litellm_backend(params, info, name, where, environment))
        draft.without_effect += _unread(
            entry, {"model_name", "litellm_params", "model_info"}, where
        )
        draft.without_effect += _unread(
            params, _LITELLM_PARAMS | _LITELLM_PRICES, f"{where}.litellm_params"
        )
        draft.without_effect += _unread(
            info, _LITELLM_INFO | _LITELLM_PRICES, f"{where}.model_info"
        )
    router = _mapping(section.get("router_settings") or {}, "router_settings")
    aliases = _mapping(router.get("model_group_alias") or {}, "router_settings.model_group_alias")
    for alias in aliases:
        where = f"router_settings.model_group_alias.{alias}"
        draft.add_alias(str(alias), _text(aliases, alias, where, environment), where)
    draft.without_effect += _unread(router, {"model_group_alias"}, "router_settings")
    draft.without_effect += [
        str(name) for name in section if name not in {"model_list", "router_settings"}
    ]


def _litellm_backend(
    params: Mapping[str, Any],
    info: Mapping[str, Any],
    name: str,
    where: str,
    environment: Mapping[str, str],
) -> BackendSpec:
    at = f"{where}.litellm_params"
    provider, model = _provider(_text(params, "model", at, environment), f"{at}.model")
    base_field = "base_url" if "base_url" in params else "api_base"
    base_url = (
        _text(params, base_field, at, environment)
        if params.get(base_field) is not None
        else PROVIDER_BASE_URLS.get(provider)
    )
    if base_url is None:
        raise _wrong(
            f"{at}.api_base",
            f"it is missing, and `{provider}` has no endpoint of its own",
            "Set `api_base` to the endpoint, for example http://127.0.0.1:8000/v1.",
        )
    return BackendSpec(
        name,
        "openai",
        model,
        base_url=_url(base_url, f"{at}.{base_field}"),
        api_key=_secret(params, at, environment),
        limit=_count(params, "max_parallel_requests", at, DEFAULT_LIMIT),
        timeout_ms=_duration_ms(params, "timeout", at, scale=1000),
        prices=_litellm_prices(params, info, where),
    )


def _provider(model: str, where: str) -> tuple[str, str]:
    prefix, slash, rest = model.partition("/")
    if not slash:
        return "openai", model
    if rest and (prefix in PROVIDER_BASE_URLS or prefix in SELF_HOSTED_PROVIDERS):
        return prefix, rest
    raise _wrong(
        where,
        f"the provider `{prefix}` is not one with an OpenAI-compatible endpoint known here",
        f"Write `openai/{rest or model}` and set `api_base` to its OpenAI-compatible endpoint.",
    )


def _litellm_prices(params: Mapping[str, Any], info: Mapping[str, Any], where: str) -> Prices:
    def price(name: str) -> Decimal | None:
        found = _money(params, name, f"{where}.litellm_params")
        return _money(info, name, f"{where}.model_info") if found is None else found

    def million(name: str) -> Decimal | None:
        found = price(name)
        return None if found is None else per_million(found)

    prices = Prices(
        million("input_cost_per_token"),
        million("output_cost_per_token"),
        million("cache_read_input_token_cost"),
        price("input_cost_per_request"),
    )
    return _checked(prices, f"{where}.litellm_params")


def _unread(
    entry: Mapping[str, Any], known: frozenset[str] | set[str], where: str
) -> Iterator[str]:
    return (f"{where}.{name}" for name in entry if name not in known)


# ---- single values --------------------------------------------------------------------------


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise _wrong(where, "it is not a mapping", "Write `field: value` lines under it.")


def _refuse_others(entry: Mapping[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    for name in entry:
        if name not in known:
            raise _wrong(
                f"{where}.{name}", "there is no such field", f"Use: {', '.join(sorted(known))}."
            )


def _text(entry: Mapping[str, Any], name: str, where: str, environment: Mapping[str, str]) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value.strip():
        state = "it is missing" if value is None else "it is not text"
        raise _wrong(f"{where}.{name}", state, f"Set `{name}` to text.")
    if not value.startswith(ENVIRONMENT_PREFIX):
        return value
    variable = value.removeprefix(ENVIRONMENT_PREFIX)
    if not environment.get(variable):
        raise _wrong(
            f"{where}.{name}",
            f"the environment variable {variable} is not set",
            f"Set {variable} for the gateway, or write the value here.",
        )
    return environment[variable]


def _secret(
    entry: Mapping[str, Any], where: str, environment: Mapping[str, str]
) -> SecretStr | None:
    if entry.get("api_key") is None:
        return None
    return SecretStr(_text(entry, "api_key", where, environment))


def _function(target: str, where: str) -> str:
    module, colon, name = target.partition(":")
    if colon and name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return target
    raise _wrong(
        where, f"`{target}` is not `module:function`", "Write for example `my.models:echo`."
    )


def _url(value: str, where: str) -> str:
    if value.startswith(("http://", "https://")) and len(value.split("://", 1)[1].strip("/")) > 0:
        return value.rstrip("/")
    raise _wrong(where, "it is not an http(s) URL", "Write for example http://127.0.0.1:8000/v1.")


def _count(entry: Mapping[str, Any], name: str, where: str, default: int) -> int:
    value = entry.get(name)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_LIMIT:
        return value
    raise _wrong(
        f"{where}.{name}", "it is not a whole number in range", f"Use 1 to {MAX_LIMIT} calls."
    )


def _duration_ms(entry: Mapping[str, Any], name: str, where: str, *, scale: int) -> float:
    value = entry.get(name)
    if value is None:
        return DEFAULT_TIMEOUT_MS
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value * scale <= MAX_TIMEOUT_MS
    ):
        return float(value * scale)
    unit = "milliseconds" if scale == 1 else "seconds"
    raise _wrong(
        f"{where}.{name}",
        "it is not a duration in range",
        f"Use a number of {unit} above 0 and up to one day.",
    )


def _money(entry: Mapping[str, Any], name: str, where: str) -> Decimal | None:
    """Return a price as it was written: a YAML float stands for its shortest decimal form."""
    value = entry.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise InvalidOperation
        price = Decimal(str(value))
    except InvalidOperation:
        raise _wrong(f"{where}.{name}", "it is not a number", 'Write for example "0.15".') from None
    if not price.is_finite() or price < 0 or price.adjusted() > MAX_USD.adjusted():
        raise _wrong(f"{where}.{name}", "it is not a price", f"Use 0 to {MAX_USD} US dollars.")
    if len(price.as_tuple().digits) > MAX_DIGITS:
        raise _wrong(f"{where}.{name}", "it has too many digits", f"Use up to {MAX_DIGITS} digits.")
    return price


def _checked(prices: Prices, where: str) -> Prices:
    for name in _PRICE_FIELDS:
        price = getattr(prices, name)
        if price is not None and not believable(price):
            raise _wrong(
                where,
                f"the price {price} is out of bounds",
                f"Use 0 to {MAX_USD} US dollars with up to {MAX_DECIMALS} decimals.",
            )
    if prices.cached_usd_per_mtok is not None and prices.input_usd_per_mtok is None:
        raise _wrong(
            where, "cached input has a price and input has none", "Give the price of input too."
        )
    return prices


def _wrong(where: str, reason: str, cure: str) -> RoutingInvalid:
    return RoutingInvalid(field=where, reason=reason, cure=cure)


_EXTRACTIVE_BACKEND = BackendSpec(
    EXTRACTIVE,
    "function",
    EXTRACTIVE_FUNCTION,
    prices=Prices(Decimal(0), Decimal(0), Decimal(0), Decimal(0)),
)
