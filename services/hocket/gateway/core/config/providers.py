"""The providers behind LiteLLM's prefixes (`azure/`, `gemini/` ...) that the gateway can reach:
where each is, and what its models are called there.

All of them except Anthropic have an endpoint that speaks OpenAI's API. Other providers (`bedrock`,
`vertex_ai`, `sagemaker` ...) are not listed, and their entries are skipped (`litellm.py`).
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hocket.gateway.core.calls.request_content import THINKING_BLOCKS
from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.config.table import BackendKind

ANTHROPIC, AZURE, FIREWORKS = "anthropic", "azure", "fireworks_ai"
AZURE_API_VERSION = "2024-10-21"
"""The default version of Azure's API: the last stable dated one."""
_AZURE_PATH = "/openai/v1"
_AZURE_UNDATED = frozenset({"v1", "latest", "preview"})
"""Versions that select Azure's undated API, which names the deployment in the body."""
_AZURE_SERIES = ("o_series/", "gpt5_series/")
"""Prefixes that LiteLLM users put before a deployment to say which model it is, one that refuses
`max_tokens`; not part of its name."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: its endpoint (empty if `api_base` must give it) and the environment variables
    that may hold its key.

    `suffix` is what LiteLLM's `api_base` lacks before the paths of OpenAI's API.
    """

    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    kind: BackendKind = "openai"
    suffix: str = ""
    usage_in_stream: bool = True
    stops_on_disconnect: bool = False
    passes: frozenset[str] = frozenset()
    """What reaches the provider without being named in `allowed_openai_params`."""


_OLLAMA = Provider("http://localhost:11434/v1", suffix="/v1", stops_on_disconnect=True)
_COHERE = Provider(
    "https://api.cohere.ai/compatibility/v1",
    ("COHERE_API_KEY", "CO_API_KEY"),
    usage_in_stream=False,  # it refuses `stream_options`
)
PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "groq": Provider("https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    "mistral": Provider("https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    "deepseek": Provider("https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",)),
    "openrouter": Provider("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY")),
    "together_ai": Provider(
        "https://api.together.xyz/v1", ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY")
    ),
    "xai": Provider("https://api.x.ai/v1", ("XAI_API_KEY",)),
    FIREWORKS: Provider(
        "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY")
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "cohere": _COHERE,
    "cohere_chat": _COHERE,
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    ANTHROPIC: Provider("https://api.anthropic.com", ("ANTHROPIC_API_KEY",), kind="anthropic"),
    AZURE: Provider(key_variables=("AZURE_API_KEY",)),
    "litellm_proxy": Provider(passes=frozenset({THINKING_BLOCKS})),  # Anthropic may be behind it
    **{
        name: Provider()
        for name in (
            "hosted_vllm",
            "vllm",
            "openai_like",
            "custom_openai",
            "lm_studio",
            "llamafile",
            "nvidia_nim",
        )
    },
}
"""Providers by prefix. Those without values are OpenAI-compatible endpoints at `api_base`."""


def provider_of(params: Fields) -> tuple[str, str]:
    """Return the provider's name and the model of an entry; `azure/gpt-4o` names both."""
    model = params.text("model")
    prefix, slash, rest = model.partition("/")
    if "custom_llm_provider" in params:
        provider = params.text("custom_llm_provider")
        return provider, rest if prefix == provider and rest else model
    if not slash:
        return ANTHROPIC if model.startswith("claude-") else "openai", model
    if prefix in PROVIDERS and not rest:
        cure = f"Write `{prefix}/` and the name of a model."
        raise wrong(params.at("model"), "it names no model", cure)
    return prefix, rest


def reached(name: str, model: str, params: Fields) -> dict[str, Any]:
    """Return the fields of a BackendSpec needed to reach a provider's model; raise RoutingInvalid."""
    provider = PROVIDERS[name]
    given = _endpoint(name, provider, params)
    key = params.secret("api_key")
    if key is None and (
        given is None or name == AZURE
    ):  # a provider's key goes only to that provider
        key = params.secret_variable(provider.key_variables)
    fields: dict[str, Any] = {
        "kind": provider.kind,
        "target": model,
        "base_url": provider.base_url if given is None else _with(given, provider.suffix),
        "api_key": key,
        "usage_in_stream": provider.usage_in_stream,
        "stops_on_disconnect": provider.stops_on_disconnect,
        "pass_fields": params.tags("allowed_openai_params") | provider.passes,
    }
    if name == AZURE:
        assert given is not None
        return fields | _azure(given, model, params)
    if name == FIREWORKS and not model.startswith("accounts/") and "#" not in model:
        fields["target"] = f"accounts/fireworks/models/{model}"
    return fields


def _endpoint(name: str, provider: Provider, params: Fields) -> str | None:
    """Return the endpoint given by the entry or, for Azure, by the environment;
    None means the provider's own."""
    base, versioned = "base_url" if "base_url" in params else "api_base", name == AZURE
    if base in params:
        return params.url(base, versioned=versioned)
    found = params.variable("AZURE_API_BASE") if name == AZURE else None
    if found is not None:
        return params.of({"api_base": found}, params.where).url("api_base", versioned=versioned)
    if not provider.base_url:
        raise wrong(
            params.at("api_base"),
            f"it is missing, and `{name}` has no endpoint of its own",
            "Set `api_base` to the endpoint, for example http://127.0.0.1:8000/v1.",
        )
    return None


def _azure(base_url: str, model: str, params: Fields) -> dict[str, Any]:
    """Return Azure's differences: the deployment is in the path, the version in the query."""
    fields: dict[str, Any] = {"key_header": "api-key"}
    if model.startswith(_AZURE_SERIES):
        fields["max_tokens_field"] = "max_completion_tokens"
        model = model.partition("/")[2]
    fields["target"] = model
    if "azure_ad_token" in params and "api_key" not in params:
        fields |= {"api_key": params.secret("azure_ad_token"), "key_header": "authorization"}
    if "api_version" in params:
        version = params.name("api_version")
    else:
        version = params.variable("AZURE_API_VERSION") or AZURE_API_VERSION
    if base_url.endswith(_AZURE_PATH):
        dated = "api_version" in params and version not in _AZURE_UNDATED
        return fields | {"base_url": base_url, "api_version": version if dated else ""}
    if version in _AZURE_UNDATED:
        asked = "" if version == "v1" else "preview"
        return fields | {"base_url": base_url + _AZURE_PATH, "api_version": asked}
    if "/openai/deployments/" not in base_url:
        base_url = f"{base_url}/openai/deployments/{quote(model, safe='')}"
    return fields | {"base_url": base_url, "api_version": version}


def _with(base_url: str, suffix: str) -> str:
    return base_url if base_url.endswith(suffix) else base_url + suffix
