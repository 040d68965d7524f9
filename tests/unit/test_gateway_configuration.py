"""The section `models:`: both forms, and a cure for each mistake."""

from decimal import Decimal
from typing import Any

import pytest
import yaml

from hocket.gateway.core.configuration import EXTRACTIVE, built_in_table, parse
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.price import Prices

LITELLM = """
model_list:
  - model_name: writer
    litellm_params:
      model: openai/gpt-4o-mini
      api_key: os.environ/WRITER_KEY
      input_cost_per_token: 0.00000015
      output_cost_per_token: 6e-7
      cache_read_input_token_cost: 7.5e-08
      rpm: 600
      timeout: 30
      max_parallel_requests: 8
  - model_name: writer
    litellm_params:
      model: hosted_vllm/qwen
      api_base: os.environ/VLLM_URL
    model_info:
      id: vllm-a
      mode: chat
router_settings:
  model_group_alias: {editor: writer}
  num_retries: 2
"""
ENVIRONMENT = {"WRITER_KEY": "k-1", "VLLM_URL": "http://gpu:8000/v1/"}


def test_a_litellm_list_is_read_as_it_is() -> None:
    table = parse(yaml.safe_load(LITELLM), ENVIRONMENT)
    first, second = table.models["writer"].backends
    assert (first.target, first.base_url, first.limit, first.timeout_ms) == (
        "gpt-4o-mini",
        "https://api.openai.com/v1",
        8,
        30_000.0,
    )
    assert first.api_key is not None
    assert first.api_key.get_secret_value() == "k-1"
    assert first.prices == Prices(Decimal("0.15"), Decimal("0.6"), Decimal("0.075"))
    assert (second.name, second.target, second.base_url) == ("vllm-a", "qwen", "http://gpu:8000/v1")


def test_litellm_fields_without_effect_are_named() -> None:
    assert parse(yaml.safe_load(LITELLM), ENVIRONMENT).without_effect == (
        "model_list[0].litellm_params.rpm",
        "model_list[1].model_info.mode",
        "router_settings.num_retries",
    )


def test_a_bare_litellm_list_is_read_too() -> None:
    section = yaml.safe_load(LITELLM)["model_list"]
    assert [b.name for b in parse(section, ENVIRONMENT).models["writer"].backends] == [
        "writer-1",
        "vllm-a",
    ]


def test_a_litellm_alias_is_routed_to_its_model() -> None:
    table = parse(yaml.safe_load(LITELLM), ENVIRONMENT)
    assert table.backends_of("editor") == table.models["writer"].backends


def test_an_api_key_is_not_printed() -> None:
    assert "k-1" not in repr(parse(yaml.safe_load(LITELLM), ENVIRONMENT))


def test_hockets_own_form_names_backends_aliases_and_functions() -> None:
    table = parse(
        yaml.safe_load("""
            planner: {alias: small}
            writer: small
            small:
              backends:
                - base_url: http://127.0.0.1:8000/v1
                  model: qwen
                  limit: 4
                  prices: {input_usd_per_mtok: "0.10", output_usd_per_mtok: 0.4}
                - {name: mine, function: "my.models:echo"}
        """),
        {},
    )
    first, second = table.backends_of("writer")
    assert (first.name, first.limit, first.prices) == (
        "small-1",
        4,
        Prices(Decimal("0.10"), Decimal("0.4")),
    )
    assert (second.name, second.kind, second.target) == ("mine", "function", "my.models:echo")
    assert table.backends_of("planner") == table.backends_of("writer")


def test_without_configuration_the_extractive_model_serves_planner_and_writer() -> None:
    table = built_in_table()
    assert table.names() == (EXTRACTIVE, "planner", "writer")
    (backend,) = table.backends_of("planner")
    assert backend.target == "hocket.workers.extractive.model:complete"
    assert (backend.prices.priced, backend.prices.rank_usd) == (True, Decimal(0))


def test_the_extractive_model_stays_beside_configured_ones() -> None:
    table = parse({"writer": {"backends": [{"function": "a:b"}]}}, {})
    assert [table.backends_of(name)[0].target for name in ("writer", "planner")] == [
        "a:b",
        "hocket.workers.extractive.model:complete",
    ]


def own(**backend: Any) -> dict[str, Any]:
    return {"m": {"backends": [{"base_url": "http://h/v1", "model": "x", **backend}]}}


def listed(**params: Any) -> list[Any]:
    return [{"model_name": "m", "litellm_params": {"model": "openai/x", **params}}]


@pytest.mark.parametrize(
    ("section", "field", "cure"),
    [
        ("writer", "models", "mapping"),
        ({"m": {}}, "models.m", "exactly one"),
        ({"m": {"alias": "nobody"}}, "models.m.alias", "Use one of: hocket-extractive"),
        ({"m": {"backends": []}}, "models.m.backends", "at least one"),
        (own(limits=3), "models.m.backends[0].limits", "base_url"),
        (own(limit=0), "models.m.backends[0].limit", "1 to"),
        (own(limit=True), "models.m.backends[0].limit", "1 to"),
        (own(timeout_ms=-1), "models.m.backends[0].timeout_ms", "milliseconds"),
        (own(kind="grpc"), "models.m.backends[0].kind", "openai"),
        (own(base_url="localhost:8000"), "models.m.backends[0].base_url", "http://"),
        (own(model=None), "models.m.backends[0].model", "text"),
        (own(api_key="os.environ/NO_KEY"), "models.m.backends[0].api_key", "Set NO_KEY"),
        (own(function="a:b"), "models.m.backends[0].base_url", "Remove"),
        (
            {"m": {"backends": [{"function": "a.b"}]}},
            "models.m.backends[0].function",
            "my.models:echo",
        ),
        (
            own(prices={"input_usd_per_mtok": "cheap"}),
            "models.m.backends[0].prices.input_usd_per_mtok",
            "0.15",
        ),
        (
            own(prices={"input_usd_per_mtok": -1}),
            "models.m.backends[0].prices.input_usd_per_mtok",
            "US dollars",
        ),
        (
            own(prices={"input_usd_per_mtok": "1e-19"}),
            "models.m.backends[0].prices",
            "18 decimals",
        ),
        (
            own(prices={"request_usd": "0." + "1" * 40}),
            "models.m.backends[0].prices.request_usd",
            "28 digits",
        ),
        (own(prices={"cached_usd_per_mtok": 1}), "models.m.backends[0].prices", "input"),
        ([{"model_name": "m"}], "model_list[0].litellm_params", "field: value"),
        ([{"litellm_params": {"model": "x"}}], "model_list[0].model_name", "Set"),
        (listed(model="azure/x"), "model_list[0].litellm_params.model", "openai/x"),
        (listed(model="hosted_vllm/x"), "model_list[0].litellm_params.api_base", "Set `api_base`"),
        (listed(timeout="soon"), "model_list[0].litellm_params.timeout", "seconds"),
        (
            {"model_list": listed(), "router_settings": {"model_group_alias": {"a": "b"}}},
            "router_settings.model_group_alias.a",
            "Use one of",
        ),
        (
            {"a": own(name="same")["m"], "b": own(name="same")["m"]},
            "models.b",
            "name` of its own",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_field_and_cure(section: Any, field: str, cure: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse(section, {})
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]
