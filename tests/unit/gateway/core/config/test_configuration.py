"""The section `models:`: both forms, and a cure for each mistake."""

from decimal import Decimal
from typing import Any

import pytest
import yaml

from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.config.configuration import EXTRACTIVE, built_in_table, parse
from hocket.gateway.core.config.table import PoolSpec
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.routing.breaker import NEVER, BreakerRule
from hocket.gateway.core.routing.locality import PrefixCache

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
  enable_pre_call_checks: true
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


def test_a_model_on_triton_has_its_tensors_named() -> None:
    backend = {"kind": "triton", "base_url": "grpc://gpu:8001", "model": "llama"}
    table = parse({"m": {"backends": [backend | {"triton": {"version": "2"}}]}}, {})
    (spec,) = table.models["m"].backends
    assert (spec.kind, spec.base_url, spec.triton.version) == ("triton", "grpc://gpu:8001", "2")


def test_litellms_wildcards_serve_no_model_and_are_named() -> None:
    wild = {"model_name": "openai/*", "litellm_params": {"model": "openai/*", "api_key": "k"}}
    named = {"model_name": "writer", "litellm_params": {"model": "openai/gpt-4o", "api_key": "k"}}
    table = parse({"model_list": [wild, named]}, {})
    assert "openai/*" not in table.models
    assert table.without_effect == ("model_list[0].model_name",)


def test_litellm_fields_without_effect_are_named() -> None:
    assert parse(yaml.safe_load(LITELLM), ENVIRONMENT).without_effect == (
        "model_list[0].litellm_params.rpm",
        "model_list[1].model_info.mode",
        "router_settings.enable_pre_call_checks",
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


OWN = """
writer:
  mode: auto
  choose: price
  min_quality: 0.5
  retries: 2
  fallbacks: [spare]
  breaker: {failure_rate: 0.3, slow_ms: 4000}
  backends:
    - name: ours
      model: qwen
      replicas:
        - http://gpu-1:8000/v1
        - {name: big, base_url: http://gpu-2:8000/v1, max_concurrency: 32, api_key: os.environ/K}
      max_concurrency: 8
      pool: gpus
      quality: 0.7
      warm_tier: warm
      labels: {precision: fp8, profile: speculative}
      residency: [eu, de]
    - name: theirs
      base_url: https://api.example.com/v1
      model: big
      mode: serverless
      quality: 0.9
      breaker: false
spare: {backends: [{function: "a:b"}]}
"""


def test_replicas_share_their_backend_and_differ_in_what_they_say() -> None:
    table = parse(yaml.safe_load(OWN), {"K": "k-2"}, {"gpus": {"max_concurrency": 24}})
    first, second, _ = table.backends_of("writer")
    assert [(one.key, one.name, one.base_url, one.limit) for one in (first, second)] == [
        ("ours/1", "ours", "http://gpu-1:8000/v1", 8),
        ("ours/big", "ours", "http://gpu-2:8000/v1", 32),
    ]
    assert first.api_key is None
    assert second.api_key is not None
    assert (first.labels, first.residency, first.quality, first.warm_tier) == (
        (("precision", "fp8"), ("profile", "speculative")),
        {"eu", "de"},
        0.7,
        "warm",
    )


def test_a_backend_may_name_the_field_of_the_limit_of_its_answers() -> None:
    for given in ({}, {"max_tokens_field": "max_completion_tokens"}):
        (spec,) = parse(own(**given), {}).backends_of("m")
        assert spec.max_tokens_field == given.get("max_tokens_field")


def test_a_model_says_how_its_backends_are_chosen() -> None:
    table = parse(yaml.safe_load(OWN), {"K": "k"}, {"gpus": {"max_concurrency": 24}})
    model = table.models["writer"]
    assert (model.mode, model.choose, model.min_quality, model.retries, model.fallbacks) == (
        "auto",
        "price",
        0.5,
        2,
        ("spare",),
    )
    ours, _, theirs = model.backends
    assert (ours.hosting, theirs.hosting) == ("dedicated", "serverless")
    assert (ours.breaker.failure_rate, ours.breaker.slow_ms) == (0.3, 4000.0)
    assert theirs.breaker == NEVER


def test_a_pool_reserves_an_eighth_for_fast_calls_where_nobody_says() -> None:
    section = {"m": {"backends": [{"function": "a:b", "pool": "p"}]}}
    pools = [
        parse(section, {}, {"p": pool}).pools["p"]
        for pool in (
            {"max_concurrency": 24},
            {"max_concurrency": 3},
            {"max_concurrency": 8, "reserved_fast": 2, "fast_ms": 50, "max_waiting": 10},
            {"max_concurrency": 8, "interactive_share": 0.5},
        )
    ]
    assert pools[:3] == [PoolSpec(24, 3), PoolSpec(3, 0), PoolSpec(8, 2, 50.0, 10)]
    assert pools[3] == PoolSpec(8, 1, interactive_share=0.5)


def test_a_backend_without_a_pool_has_one_of_its_own_over_its_replicas() -> None:
    section = {"m": {"backends": [{"name": "b", "model": "x", "limit": 3, "replicas": URLS}]}}
    assert parse(section, {}).pools["b"] == PoolSpec(6)


def test_a_prefix_cache_makes_its_model_choose_by_locality() -> None:
    cache = {"tokens": 2_560_000, "block_tokens": 512, "prefill_tokens_per_s": 8_000}
    models = parse({**own(prefix_cache=cache), "n": own()["m"]}, {}).models
    assert [models[name].choose for name in ("m", "n")] == ["locality", "load"]
    assert models["m"].backends[0].prefix_cache == PrefixCache(2_560_000, 512, 8_000.0)


def test_litellms_router_settings_decide_retries_strategy_fallbacks_and_cooldown() -> None:
    section = yaml.safe_load("""
        model_list:
          - model_name: writer
            litellm_params: {model: openai/a, region_name: eu}
          - model_name: spare
            litellm_params: {model: openai/b}
        router_settings:
          routing_strategy: cost-based-routing
          num_retries: 3
          timeout: 20
          allowed_fails: 5
          cooldown_time: 30
          fallbacks: [{writer: [spare]}]
    """)
    table = parse(section, {})
    model = table.models["writer"]
    (backend,) = model.backends
    assert (model.choose, model.retries, model.fallbacks) == ("price", 3, ("spare",))
    assert (backend.timeout_ms, backend.residency) == (20_000.0, {"eu"})
    assert (backend.breaker.failures_in_a_row, backend.breaker.max_open_ms) == (5, 30_000.0)
    assert table.without_effect == ()


def test_litellms_fallbacks_of_a_name_without_entries_are_reported() -> None:
    """An alias, for example: its calls go to its model, and fall back as that one's."""
    section = yaml.safe_load("""
        model_list:
          - {model_name: writer, litellm_params: {model: openai/a}}
          - {model_name: spare, litellm_params: {model: openai/b}}
        router_settings:
          model_group_alias: {editor: writer}
          fallbacks: [{editor: [spare]}, {writer: [spare]}]
        litellm_settings:
          fallbacks: [{"*": [spare]}]
    """)
    table = parse(section, {})
    assert table.models["writer"].fallbacks == ("spare",)
    assert table.without_effect == (
        "litellm_settings.fallbacks.*",
        "router_settings.fallbacks.editor",
    )


def test_litellms_cooldown_may_follow_the_first_failure_or_take_no_time() -> None:
    entry = {"model_name": "writer", "litellm_params": {"model": "openai/a"}}
    router: dict[str, Any] = {"allowed_fails": 0, "cooldown_time": 0}
    table = parse({"model_list": [entry], "router_settings": router}, {})
    (backend,) = table.models["writer"].backends
    rule = backend.breaker
    assert (rule.failures_in_a_row, rule.open_ms, rule.max_open_ms) == (1, 0.0, 0.0)
    for value in (-1, False):
        section = {"model_list": [entry], "router_settings": {"cooldown_time": value}}
        with pytest.raises(RoutingInvalid, match="seconds from 0 up to one day"):
            parse(section, {})


def test_a_models_breaker_is_that_of_its_backends_unless_they_have_one() -> None:
    first_entry = {"base_url": "http://a/v1", "model": "x"}
    backends = [first_entry, {**first_entry, "breaker": {"open_ms": 7}}]
    for rule, expected in ((False, NEVER), ({"open_ms": 5}, BreakerRule(open_ms=5.0))):
        table = parse({"m": {"backends": backends, "breaker": rule}}, {})
        first, second = table.models["m"].backends
        assert first.breaker == expected
        assert second.breaker == BreakerRule(open_ms=7.0)


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


URLS = ["http://a/v1", "http://b/v1"]
DEPLOYED = "https://acme.openai.azure.com/openai/deployments/gpt-4o"


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
        (own(triton={"text_input": "A"}), "models.m.backends[0].triton", "kind: triton"),
        (own(kind="triton", triton=5), "models.m.backends[0].triton", "field: value"),
        (own(kind="triton", triton={"txt": "A"}), "models.m.backends[0].triton.txt", "text_input"),
        (
            own(kind="triton", triton={"text_input": 5}),
            "models.m.backends[0].triton.text_input",
            "text",
        ),
        (own(base_url="localhost:8000"), "models.m.backends[0].base_url", "http://"),
        (
            own(base_url="http://h/v1?api-version=2024"),
            "models.m.backends[0].base_url",
            "Set `api_version`",
        ),
        (
            own(base_url=f"{DEPLOYED}/chat/completions?API-Version=2024-10-21"),
            "models.m.backends[0].base_url",
            "Set `api_version` instead, and end the URL before `/chat/completions`",
        ),
        (
            own(base_url="http://h/v1/chat/completions?x-api-version=1"),
            "models.m.backends[0].base_url",
            "End it before `/chat/completions`",
        ),
        (
            own(kind="anthropic", base_url="http://h?api-version=1"),
            "models.m.backends[0].base_url",
            "End it with its path",
        ),
        (
            own(kind="triton", base_url="http://h:8000?api-version=2"),
            "models.m.backends[0].base_url",
            "End it with its path",
        ),
        (
            own(base_url=None, replicas=["http://h/v1?api-version=1"]),
            "models.m.backends[0].replicas[0].base_url",
            "Set `api_version`",
        ),
        (
            listed(model="azure/gpt-4o", api_base="http://h?api-version=1"),
            "model_list[0].litellm_params.api_base",
            "Set `api_version`",
        ),
        (
            listed(model="openai/x", api_base="http://h/v1?api-version=1"),
            "model_list[0].litellm_params.api_base",
            "End it with its path",
        ),
        (own(base_url="http://h/v1?key=1"), "models.m.backends[0].base_url", "`api_key`"),
        (own(base_url="http://h/v1?"), "models.m.backends[0].base_url", "End it with its path"),
        (own(base_url="http://h/v1#"), "models.m.backends[0].base_url", "End it with its path"),
        (listed(api_base="http://h/v1?k=1"), "model_list[0].litellm_params.api_base", "`api_key`"),
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
        (listed(model="azure/x"), "model_list[0].litellm_params.api_base", "Set `api_base`"),
        (listed(model="xai/"), "model_list[0].litellm_params.model", "name of a model"),
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
            "its own `name`",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_field_and_cure(section: Any, field: str, cure: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse(section, {})
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]


@pytest.mark.parametrize(
    ("section", "field", "cure"),
    [
        ({"m": {**own()["m"], "mode": "cloud"}}, "models.m.mode", "`serverless`"),
        ({"m": {**own()["m"], "choose": "best"}}, "models.m.choose", "`latency`"),
        ({"m": {**own()["m"], "retries": 99}}, "models.m.retries", "0 to 10"),
        ({"m": {**own()["m"], "min_quality": 2}}, "models.m.min_quality", "0 to 1"),
        ({"m": {**own()["m"], "fallbacks": ["x"]}}, "models.m.fallbacks", "hocket-extractive"),
        ({"m": {**own()["m"], "fallbacks": ["m"]}}, "models.m.fallbacks", "another"),
        ({"m": {**own()["m"], "fallbacks": "x"}}, "models.m.fallbacks", "List"),
        ({"m": {"alias": "a", "mode": "auto"}}, "models.m.mode", "alias"),
        (own(mode="auto"), "models.m.backends[0].mode", "`dedicated`"),
        (own(max_concurrency=2, limit=2), "models.m.backends[0].limit", "Remove"),
        (own(replicas=URLS), "models.m.backends[0].base_url", "each replica"),
        (own(base_url=None, replicas=[]), "models.m.backends[0].replicas", "URLs"),
        (
            own(base_url=None, replicas=[{"url": "http://a"}]),
            "models.m.backends[0].replicas[0].url",
            "base_url",
        ),
        (
            own(base_url=None, replicas=[{"name": "x", "base_url": u} for u in URLS]),
            "models.m",
            "replica",
        ),
        (
            {"a": own(name="w/1")["m"], "b": own(name="w", base_url=None, replicas=URLS)["m"]},
            "models.b",
            "BACKEND/NAME",
        ),
        (own(quality=1.5), "models.m.backends[0].quality", "0 to 1"),
        (
            own(max_tokens_field="n_predict"),
            "models.m.backends[0].max_tokens_field",
            "`max_completion_tokens`",
        ),
        (
            own(kind="anthropic", max_tokens_field="max_tokens"),
            "models.m.backends[0].max_tokens_field",
            "kind: openai",
        ),
        (own(warm_tier="icy"), "models.m.backends[0].warm_tier", "`cold`"),
        (own(labels={"precision": 8}), "models.m.backends[0].labels.precision", "fp8"),
        (own(residency=[1]), "models.m.backends[0].residency", "list"),
        (own(breaker={"rate": 1}), "models.m.backends[0].breaker.rate", "failure_rate"),
        (own(breaker={"failure_rate": 0}), "models.m.backends[0].breaker.failure_rate", "0.01"),
        (own(breaker=True), "models.m.backends[0].breaker", "field: value"),
        (own(prefix_cache={"blocks": 1}), "models.m.backends[0].prefix_cache.blocks", "tokens"),
        (
            own(prefix_cache={"block_tokens": 1}),
            "models.m.backends[0].prefix_cache.block_tokens",
            "16 to",
        ),
        (
            {
                "m": {
                    "backends": [
                        own(prefix_cache={"block_tokens": n})["m"]["backends"][0] for n in (64, 128)
                    ]
                }
            },
            "models.m.backends",
            "the same `block_tokens`",
        ),
    ],
)
def test_a_mistake_in_what_goes_beyond_litellm_is_refused_too(
    section: Any, field: str, cure: str
) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse(section, {})
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]


@pytest.mark.parametrize(
    ("pools", "field", "cure"),
    [
        ({"p": {}}, "pools.p.max_concurrency", "Set"),
        ({"p": {"max_concurrency": 2, "reserved_fast": 2}}, "pools.p.reserved_fast", "0 to 1"),
        (
            {"p": {"max_concurrency": 8, "interactive_share": 0.6}},
            "pools.p.interactive_share",
            "0 to 0.5",
        ),
        ({"p": {"max_concurrency": 2, "places": 2}}, "pools.p.places", "max_waiting"),
        ({"q": {"max_concurrency": 2}}, "pools.q", "`pool: q`"),
        ([], "pools", "field: value"),
    ],
)
def test_a_mistake_in_a_pool_is_refused_with_its_field_and_cure(
    pools: Any, field: str, cure: str
) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse(own(pool="p"), {}, pools)
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]


@pytest.mark.parametrize(
    ("router", "field", "cure"),
    [
        ({"routing_strategy": "magic"}, "router_settings.routing_strategy", "`least-busy`"),
        ({"num_retries": -1}, "router_settings.num_retries", "0 to"),
        ({"fallbacks": {"m": ["x"]}}, "router_settings.fallbacks", "writer"),
        ({"fallbacks": [{"m": ["x"]}]}, "router_settings.fallbacks", "Use one of"),
        ({"cooldown_time": "x"}, "router_settings.cooldown_time", "seconds"),
    ],
)
def test_a_mistake_in_router_settings_is_refused_with_its_field_and_cure(
    router: Any, field: str, cure: str
) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse({"model_list": listed(), "router_settings": router}, {})
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]


def test_the_faults_of_all_models_backends_and_pools_are_told_at_once() -> None:
    good = {"base_url": "http://127.0.0.1:1", "model": "m"}
    section = {
        "a": {"backends": [{**good, "limit": 0}, good, {**good, "kind": "x"}]},
        "b": {"alias": "a", "backends": [good]},
        "c": {"backends": [good]},
    }
    with pytest.raises(RoutingInvalid) as caught:
        parse(section, {}, {"p": {"max_concurrency": -1}})
    fields = caught.value.fields
    assert [fields["field"], *(one["field"] for one in fields["others"])] == [
        "models.a.backends[0].limit", "models.a.backends[2].kind", "models.b",
        "pools.p.max_concurrency",
    ]  # fmt: skip


def test_the_faults_of_one_model_and_of_what_names_it_are_told_at_once() -> None:
    good = {"base_url": "http://127.0.0.1:1", "model": "m"}
    section = {
        "w": {"backends": [good], "fallbacks": ["no", "t"], "choose": "fastest", "max_retries": 3},
        "r": "no",
        "s": "w",
        "t": {"backends": []},
    }
    with pytest.raises(RoutingInvalid) as caught:
        parse(section, {})
    fields = caught.value.fields
    assert [fields["field"], *(one["field"] for one in fields["others"])] == [
        "models.w.max_retries", "models.w.choose", "models.t.backends", "models.r",
        "models.w.fallbacks",
    ]  # fmt: skip


def test_the_faults_of_all_entries_of_litellm_are_told_at_once() -> None:
    params = {"model": "openai/m", "api_base": "http://127.0.0.1:1"}
    entries = [
        {"model_name": "a", "litellm_params": {**params, "timeout": -1}},
        {"model_name": "b", "litellm_params": params},
        {"litellm_params": params},
    ]
    with pytest.raises(RoutingInvalid) as caught:
        parse(entries, {})
    fields = caught.value.fields
    assert [fields["field"], *(one["field"] for one in fields["others"])] == [
        "model_list[0].litellm_params.timeout", "model_list[2].model_name",
    ]  # fmt: skip
