"""Which fields of a body in OpenAI's shape go to a backend: those that choose no model and no price."""

from dataclasses import replace
from typing import Any

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from hocket.gateway.core.calls.body_fields import (
    CHOOSES_PRICE,
    ENGINE_FIELDS,
    OPENAI_FIELDS,
    check_passed,
    unusual_fields,
)
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.errors import FieldNotPassed
from hocket.gateway.core.routing.replica_choice import CallFacts, View, choose
from hocket.schemas.messages import CallRequest, OpenAIBody

URL = "http://127.0.0.1:8000/v1"


def fields(**body: Any) -> frozenset[str]:
    openai = OpenAIBody(path="chat/completions", body={"model": "m", "messages": [], **body})
    return unusual_fields(
        CallRequest(call_id="c", model="m", openai=openai, deadline_at_ms=1_800_000_000_000)
    )


def backend(name: str, *passed: str, **more: Any) -> BackendSpec:
    more = {"kind": "openai", **more}
    return BackendSpec(name, target="m-1", base_url=URL, pass_fields=frozenset(passed), **more)


def test_it_is_decided_of_every_parameter_of_the_official_client() -> None:
    bases = (
        chat_create_params.CompletionCreateParamsBase,
        chat_create_params.CompletionCreateParamsStreaming,
        completion_create_params.CompletionCreateParamsBase,
        completion_create_params.CompletionCreateParamsStreaming,
        embedding_create_params.EmbeddingCreateParams,
    )
    official = {name for base in bases for name in base.__annotations__}
    assert official == OPENAI_FIELDS | CHOOSES_PRICE
    assert fields(**dict.fromkeys(OPENAI_FIELDS - {"tools"} | ENGINE_FIELDS, "x")) == frozenset()
    assert fields(**dict.fromkeys(CHOOSES_PRICE, "x")) == CHOOSES_PRICE
    assert fields(service_tier=None) == frozenset()


@pytest.mark.parametrize(
    "name",
    "models fallbacks route provider plugins transforms service_tier web_search_options n_predict"
    " use_beam_search priority base_url api_key extra_body".split(),
)
def test_a_field_that_may_choose_a_model_or_a_price_is_refused(name: str) -> None:
    with pytest.raises(FieldNotPassed) as refused:
        check_passed("m", fields(**{name: "x"}), [backend("a")])
    assert refused.value.fields["field"] == name
    assert "`pass_fields`" in str(refused.value)


def test_a_backend_lets_through_what_its_configuration_says() -> None:
    own = {"name": "a", "base_url": URL, "model": "m", "pass_fields": ["service_tier", "route"]}
    (spec,) = parse({"m": {"backends": [own]}}, {}).backends_of("m")
    check_passed("m", fields(service_tier="flex", route="x"), [spec])
    with pytest.raises(FieldNotPassed, match="`models`"):
        check_passed("m", fields(service_tier="flex", models=["x"]), [spec])
    params = {"model": "openai/m", "allowed_openai_params": ["service_tier"]}
    (spec,) = parse([{"model_name": "m", "litellm_params": params}], {}).backends_of("m")
    assert spec.pass_fields == {"service_tier"}


def test_a_backend_that_reads_no_such_field_takes_any() -> None:
    check_passed("m", frozenset({"models"}), [backend("a", kind="function")])


FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("tools", "unusual"),
    [
        ([], set()),
        (None, set()),
        ([FUNCTION, FUNCTION | {"strict": True}, {"function": {"name": "g"}}], set()),
        ([FUNCTION, {"type": "web_search"}], {"tools.web_search"}),
        ([{"type": "web_search_20250305", "name": "s"}], {"tools.web_search_20250305"}),
        (
            [{"type": "mcp", "server_url": "http://x"}, {"type": "custom"}],
            {"tools.mcp", "tools.custom"},
        ),
        ([FUNCTION | {"googleSearch": {}}], {"tools.googleSearch"}),
        ([{"google_search": {}}], {"tools.google_search"}),
        ([{"type": None}], {"tools.None"}),
        ([{"type": ["function"]}], {"tools.['function']"}),
        (["web_search"], {"tools"}),
        ({"type": "web_search"}, {"tools.web_search"}),
        ("web_search", {"tools"}),
    ],
)
def test_of_tools_functions_go_on_and_not_what_providers_run(tools: Any, unusual: set[str]) -> None:
    assert fields(tools=tools) == unusual
    if unusual:
        with pytest.raises(FieldNotPassed):
            check_passed("m", fields(tools=tools), [backend("a")])


def test_tools_that_providers_run_go_where_the_configuration_says() -> None:
    own = {"name": "a", "base_url": URL, "model": "m", "pass_fields": ["tools.web_search"]}
    (spec,) = parse({"m": {"backends": [own]}}, {}).backends_of("m")
    check_passed("m", fields(tools=[FUNCTION, {"type": "web_search"}]), [spec])
    with pytest.raises(FieldNotPassed, match=r"`tools\.mcp`"):
        check_passed("m", fields(tools=[{"type": "mcp"}]), [spec])


LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TEXT = {"type": "text", "text": "Hi"}
TURN = {"role": "user", "content": [TEXT]}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [TURN, TURN | LONG]},
        {"messages": [TURN | {"content": [TEXT, TEXT | LONG]}]},
        {"messages": [{"role": "assistant", "tool_calls": [FUNCTION | LONG]}]},
        {"tools": [FUNCTION, FUNCTION | LONG]},
    ],
)
def test_a_longer_life_in_the_cache_goes_only_where_the_configuration_says(
    body: dict[str, Any],
) -> None:
    assert fields(**body) == {"cache_control"}
    with pytest.raises(FieldNotPassed, match="`cache_control`"):
        check_passed("m", fields(**body), [backend("a")])
    check_passed("m", fields(**body), [backend("a", "cache_control")])


@pytest.mark.parametrize("mark", [{"type": "ephemeral"}, {"ttl": "5m"}, {"ttl": None}, None, 7])
def test_the_usual_life_in_the_cache_goes_on(mark: Any) -> None:
    usual = {"cache_control": mark}
    parts = [TEXT | usual, 7, "x"]
    messages = [TURN | usual, TURN | {"content": parts}, TURN | {"content": "x"}, 7]
    assert fields(messages=messages, tools=[FUNCTION | usual]) == frozenset()


SPOKEN = {"role": "user", "content": [TEXT, {"type": "input_audio", "input_audio": {"data": "AA"}}]}
HEARD = {"type": "audio_url", "audio_url": {"url": "https://x/a.wav"}}


@pytest.mark.parametrize(
    ("body", "held"),
    [
        (
            {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
            {"modalities", "audio"},
        ),
        ({"modalities": ["image", "text"]}, {"modalities"}),
        ({"messages": [TURN, SPOKEN]}, {"input_audio"}),
        ({"messages": [TURN | {"content": [HEARD]}]}, {"audio_url"}),
        ({"messages": [{"role": "assistant", "audio": {"id": "a-1"}}]}, {"audio"}),
    ],
)
def test_sound_which_costs_more_than_text_goes_only_where_the_configuration_says(
    body: dict[str, Any], held: set[str]
) -> None:
    assert fields(**body) == held
    with pytest.raises(FieldNotPassed):
        check_passed("m", fields(**body), [backend("a")])
    check_passed("m", fields(**body), [backend("a", *held)])


@pytest.mark.parametrize("modalities", [None, [], ["text"]])
def test_a_call_for_text_alone_goes_on(modalities: Any) -> None:
    """OpenAI's client sends an answer back with an `audio` that is null."""
    messages = [TURN, {"role": "assistant", "content": "Hi", "audio": None}]
    assert fields(modalities=modalities, messages=messages) == frozenset()


def test_tools_of_a_call_that_is_not_in_openais_shape_are_looked_at_too() -> None:
    call = CallRequest(
        call_id="c",
        model="m",
        prompt="p",
        tools=({"type": "web_search"}, FUNCTION | LONG),
        deadline_at_ms=1_800_000_000_000,
    )
    assert unusual_fields(call) == {"tools.web_search", "cache_control"}


def test_a_call_goes_only_where_all_its_fields_may() -> None:
    specs = (backend("a"), backend("b", "route", limit=1), backend("c", "route"))
    table = RoutingTable({"m": ModelSpec(specs)})
    call = CallFacts("m", fields=frozenset({"route"}))
    decision = choose(table, call, View(0, in_flight={"b": 1}))
    assert decision.chosen is not None
    assert decision.chosen.name == "c"
    assert decision.candidates[0].refused == "does not let `route` through"
    plain = choose(table, replace(call, fields=frozenset()), View(0))
    assert plain.chosen is not None
    assert plain.chosen.name == "a"


def test_a_field_with_a_name_that_cannot_be_printed_is_shown_all_the_same() -> None:
    with pytest.raises(FieldNotPassed) as refused:
        check_passed("m", fields(**{"\n" + "x" * 10_000: 1}), [backend("a")])
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()
