"""LiteLLM's providers: where their models are reached, and what becomes of those that are not."""

from decimal import Decimal
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.reading import read_routes
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import ModelSkipped, ModelUnknown, RoutingInvalid


def entry(name: str = "m", **params: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": params}


def spec_of(environment: dict[str, str] | None = None, **params: Any) -> BackendSpec:
    (spec,) = parse([entry(**params)], environment or {}).backends_of("m")
    return spec


@pytest.mark.parametrize(
    ("model", "base_url", "target"),
    [
        ("xai/grok-4", "https://api.x.ai/v1", "grok-4"),
        (
            "gemini/gemini-2.5-flash",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "gemini-2.5-flash",
        ),
        ("cohere/command-a", "https://api.cohere.ai/compatibility/v1", "command-a"),
        ("ollama/llama3:8b", "http://localhost:11434/v1", "llama3:8b"),
        ("ollama_chat/llama3", "http://localhost:11434/v1", "llama3"),
        (
            "fireworks_ai/qwen3",
            "https://api.fireworks.ai/inference/v1",
            "accounts/fireworks/models/qwen3",
        ),
        (
            "fireworks_ai/accounts/acme/deployedModels/x",
            "https://api.fireworks.ai/inference/v1",
            "accounts/acme/deployedModels/x",
        ),
        ("openrouter/acme/big", "https://openrouter.ai/api/v1", "acme/big"),
    ],
)
def test_a_prefix_says_where_its_models_are_and_what_they_are_called(
    model: str, base_url: str, target: str
) -> None:
    spec = spec_of(model=model)
    assert (spec.kind, spec.base_url, spec.target) == ("openai", base_url, target)
    assert (spec.key_header, spec.api_version) == ("authorization", "")


def test_thinking_reaches_a_proxy_that_may_have_anthropic_behind_it() -> None:
    fields = {"api_base": "http://proxy:4000", "allowed_openai_params": ["service_tier"]}
    assert spec_of(model="hosted_vllm/x", **fields).pass_fields == {"service_tier"}
    passed = spec_of(model="litellm_proxy/claude", **fields).pass_fields
    assert passed == {"service_tier", "thinking_blocks"}


def test_an_ollama_elsewhere_is_asked_where_it_speaks_openais_api() -> None:
    assert spec_of(model="ollama/x", api_base="http://gpu:11434").base_url == "http://gpu:11434/v1"
    spec = spec_of(model="ollama/x", api_base="http://gpu:11434/v1/")
    assert (spec.base_url, spec.stops_on_disconnect) == ("http://gpu:11434/v1", True)


def test_cohere_gets_no_stream_options_which_it_refuses() -> None:
    assert not spec_of(model="cohere_chat/command-a").usage_in_stream
    assert spec_of(model="xai/grok-4").usage_in_stream


AZURE = "https://acme.openai.azure.com"


@pytest.mark.parametrize(
    ("params", "base_url", "api_version"),
    [
        ({"api_version": "2025-01-01"}, f"{AZURE}/openai/deployments/gpt-4o", "2025-01-01"),
        ({}, f"{AZURE}/openai/deployments/gpt-4o", "2024-10-21"),
        ({"api_version": "v1"}, f"{AZURE}/openai/v1", ""),
        ({"api_version": "preview"}, f"{AZURE}/openai/v1", "preview"),
        ({"api_base": f"{AZURE}/openai/v1/"}, f"{AZURE}/openai/v1", ""),
        (
            {"api_base": f"{AZURE}/openai/deployments/other", "api_version": "2025-01-01"},
            f"{AZURE}/openai/deployments/other",
            "2025-01-01",
        ),
    ],
)
def test_azure_names_the_deployment_in_its_path_and_the_version_in_its_query(
    params: dict[str, str], base_url: str, api_version: str
) -> None:
    given = {"model": "azure/gpt-4o", "api_base": f"{AZURE}/", "api_key": "k"} | params
    spec = spec_of(**given)
    assert (spec.base_url, spec.api_version, spec.target) == (base_url, api_version, "gpt-4o")
    assert spec.key_header == "api-key"


def test_azure_takes_a_token_and_what_the_environment_says() -> None:
    environment = {"AZURE_API_BASE": AZURE, "AZURE_API_VERSION": "2025-03-01", "AZURE_API_KEY": "k"}
    spec = spec_of(environment, model="azure/o_series/my o3")
    assert spec.base_url == f"{AZURE}/openai/deployments/my%20o3"
    assert (spec.target, spec.api_version, spec.key_header) == ("my o3", "2025-03-01", "api-key")
    assert spec.max_tokens_field == "max_completion_tokens"
    token = spec_of(environment, model="azure/x", azure_ad_token="t")
    assert token.api_key is not None
    assert (token.api_key.get_secret_value(), token.key_header) == ("t", "authorization")
    with pytest.raises(RoutingInvalid, match="`azure` has no endpoint of its own"):
        spec_of(model="azure/gpt-4o")


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("azure/o_series/my-o3", "max_completion_tokens"),
        ("azure/gpt5_series/mine", "max_completion_tokens"),
        ("azure/gpt-4o", None),
    ],
)
def test_azures_reasoning_models_get_the_limit_under_its_new_name_wherever_they_are(
    model: str, field: str | None
) -> None:
    spec = spec_of(model=model, api_base="https://apim.acme.com", api_key="k")
    assert (spec.target, spec.max_tokens_field) == (model.split("/")[-1], field)


def test_a_key_of_the_environment_goes_to_its_own_provider_and_nowhere_else() -> None:
    environment = {"XAI_API_KEY": "k-1"}
    spec = spec_of(environment, model="xai/grok-4")
    assert spec.api_key is not None
    assert spec.api_key.get_secret_value() == "k-1"
    assert spec_of(environment, model="xai/grok-4", api_base="http://other/v1").api_key is None


@pytest.mark.parametrize(
    ("params", "base_url"),
    [
        ({"model": "anthropic/claude-1"}, "https://api.anthropic.com"),
        ({"model": "claude-1"}, "https://api.anthropic.com"),
        ({"model": "anthropic/claude-1", "api_base": "http://proxy/v1"}, "http://proxy/v1"),
    ],
)
def test_anthropic_has_a_backend_of_its_own_kind(params: dict[str, str], base_url: str) -> None:
    environment = {"ANTHROPIC_API_KEY": "k-1"}
    spec = spec_of(
        environment, **params, cache_creation_input_token_cost=3.75e-6, input_cost_per_token=3e-6
    )
    assert (spec.kind, spec.target, spec.base_url) == ("anthropic", "claude-1", base_url)
    assert spec.prices.cache_write_usd_per_mtok == Decimal("3.75")
    assert (spec.api_key is None) == ("api_base" in params)
    own = {"m": {"backends": [{"kind": "anthropic", "model": "claude-1"}]}}
    (spec,) = parse(own, {}).backends_of("m")
    assert (spec.kind, spec.base_url) == ("anthropic", "https://api.anthropic.com")
    with pytest.raises(RoutingInvalid, match="key_header"):
        parse({"m": {"backends": [{**own["m"]["backends"][0], "key_header": "api-key"}]}}, {})


def test_custom_llm_provider_says_the_provider() -> None:
    spec = spec_of(model="acme/big", custom_llm_provider="xai")
    assert (spec.base_url, spec.target) == ("https://api.x.ai/v1", "acme/big")


MIXED = """
model_list:
  - {model_name: sonnet, litellm_params: {model: bedrock/anthropic.claude, aws_region_name: us-east-1}}
  - {model_name: sonnet, litellm_params: {model: vertex_ai/claude, vertex_project: os.environ/UNSET}}
  - {model_name: writer, litellm_params: {model: bedrock/titan}}
  - {model_name: writer, litellm_params: {model: xai/grok-4}}
router_settings:
  model_group_alias: {best: sonnet, editor: writer}
  fallbacks: [{writer: [sonnet]}]
general_settings: {master_key: sk-1, database_url: "postgres://x"}
environment_variables: {REDIS_HOST: x}
"""


def test_entries_of_other_providers_are_skipped_and_a_call_of_their_model_says_so() -> None:
    table = parse(yaml.safe_load(MIXED), {})
    assert [(one.field, one.model, one.provider) for one in table.skipped] == [
        ("model_list[0].litellm_params.model", "sonnet", "bedrock"),
        ("model_list[1].litellm_params.model", "sonnet", "vertex_ai"),
        ("model_list[2].litellm_params.model", "writer", "bedrock"),
    ]
    assert [spec.target for spec in table.backends_of("editor")] == ["grok-4"]
    assert table.models["writer"].fallbacks == ()
    for name in ("sonnet", "best"):
        with pytest.raises(ModelSkipped, match=f"`{name}` was skipped.*bedrock, vertex_ai"):
            table.model(name)
    with pytest.raises(ModelUnknown, match="editor, hocket-extractive, planner, writer"):
        table.model("other")


async def test_the_log_says_what_was_skipped_and_what_has_no_effect(
    tmp_path: Any,
) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(MIXED)
    with capture_logs() as logs:
        routes = await read_routes(path)
    await retire_missing(routes.served, {})
    said = repr(logs)
    assert said.count("routing_entry_skipped") == 3
    for field in (
        "general_settings.master_key",
        "general_settings.database_url",
        "environment_variables.REDIS_HOST",
    ):
        assert field in said
    assert "sk-1" not in said
