"""What Anthropic's Messages API is sent for a chat completion."""

from base64 import b64encode
from typing import Any

import pytest

from hocket.gateway.core.calls.request_content import MAX_OUTPUT_TOKENS, answer_tokens
from hocket.gateway.core.protocols.anthropic.request import (
    DEFAULT_MAX_TOKENS,
    NotTranslatable,
    as_chat,
    outgoing,
)
from support.gateway.routing_rig import request

SCHEMA = {"type": "object", "properties": {}}


def call(name: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def asked(**more: Any) -> dict[str, Any]:
    """Return the request for a conversation in which functions were called."""
    calls = [call("find", "a"), call("rank", "b"), call("find", "c")]
    results = [{"role": "tool", "tool_call_id": one["id"], "content": "7"} for one in calls]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": calls}]
    body = {"model": "m", "messages": [*turns, *results], **more}
    return outgoing(body, frozenset(), stream=False).body


@pytest.mark.parametrize("more", [{}, {"tools": []}, {"tool_choice": "auto"}])
def test_a_conversation_with_calls_names_the_functions_that_cannot_be_called_any_more(
    more: dict[str, Any],
) -> None:
    """The API refuses one with calls but without `tools`, as the last turn of an agent may be."""
    body = asked(**more)
    assert body["tools"] == [{"name": name, "input_schema": SCHEMA} for name in ("find", "rank")]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("content", ["\n\n", [{"type": "text", "text": " \n"}], "", None])
def test_a_turn_with_nothing_but_white_space_and_calls_has_only_its_calls(content: Any) -> None:
    """The API refuses blocks of white space."""
    turns = [
        {"role": "system", "content": content},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": content, "tool_calls": [call("find", "a")]},
        {"role": "tool", "tool_call_id": "a", "content": "7"},
    ]
    body = outgoing({"model": "m", "messages": turns}, frozenset(), stream=False).body
    assert "system" not in body
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]


def test_calls_of_others_than_the_model_name_nothing() -> None:
    turn = {"role": "user", "content": "?", "tool_calls": [{}]}
    body = outgoing({"model": "m", "messages": [turn]}, frozenset(), stream=False).body
    assert "tools" not in body


def test_functions_that_may_be_called_or_an_answer_tool_are_enough() -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
    assert asked(tools=[tool])["tools"] == [{"name": "find", "input_schema": SCHEMA}]
    assert "tool_choice" not in asked(tools=[tool])
    body = asked(response_format={"type": "json_object"})
    assert [one["name"] for one in body["tools"]] == ["answer"]
    assert body["tool_choice"] == {"type": "tool", "name": "answer"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"budget_tokens": 20_000}, 20_000 + DEFAULT_MAX_TOKENS),
        ({"budget_tokens": 10**12}, MAX_OUTPUT_TOKENS + DEFAULT_MAX_TOKENS),
        ({"budget_tokens": "20000"}, DEFAULT_MAX_TOKENS),
        ({"type": "disabled", "budget_tokens": 20_000}, DEFAULT_MAX_TOKENS),
        ({"type": "adaptive"}, DEFAULT_MAX_TOKENS),
    ],
)
def test_without_a_limit_an_answer_has_room_after_its_thinking(
    more: dict[str, Any], expected: int
) -> None:
    """The API refuses a limit that the thinking may use up; what may be written is reserved, too."""
    thinking = {"type": "enabled", **more}
    assert asked(thinking=thinking)["max_tokens"] == expected
    body = {"model": "m", "messages": [], "thinking": thinking}
    call = request(openai={"path": "chat/completions", "body": body})
    assert answer_tokens(call, DEFAULT_MAX_TOKENS) == expected


def test_a_limit_of_the_call_is_that_of_its_thinking_too() -> None:
    thinking = {"type": "enabled", "budget_tokens": 20_000}
    assert asked(thinking=thinking, max_tokens=30_000)["max_tokens"] == 30_000


def document(data: str) -> Any:
    """Return the source of the document that a file becomes."""
    parts = [{"type": "file", "file": {"filename": "a", "file_data": data}}]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    (block,) = outgoing(body, frozenset(), stream=False).body["messages"][0]["content"]
    assert block["type"] == "document"
    return block["source"]


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown", "text/csv;charset=utf-8"])
def test_a_file_of_text_goes_out_as_text(kind: str) -> None:
    """The API takes no other file than a PDF in base64."""
    data = b64encode("Flut um \u00bd vier".encode()).decode()
    assert document(f"data:{kind};base64,{data}") == {
        "type": "text",
        "media_type": "text/plain",
        "data": "Flut um \u00bd vier",
    }


def test_a_pdf_goes_out_as_it_is_or_as_its_address() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "QUFB"}
    assert document("data:application/pdf;base64,QUFB") == pdf
    assert document("https://x/a.pdf") == {"type": "url", "url": "https://x/a.pdf"}


@pytest.mark.parametrize(
    "data",
    [
        "data:application/zip;base64,QUFB",
        "data:text/plain;base64,/w==",
        "data:text/plain;base64,QUF",
        "data:text/plain;base64,\u00e4",
    ],
)
def test_a_file_that_the_api_takes_in_no_form_is_for_another_backend(data: str) -> None:
    with pytest.raises(NotTranslatable) as refused:
        document(data)
    assert refused.value.field == "messages[0].content[0]"


@pytest.mark.parametrize("tools", [-1, "web_search", ["web_search"], {"type": "function"}])
def test_tools_of_a_legacy_completion_that_are_none_are_refused(tools: Any) -> None:
    """Nobody has checked them: legacy completions have no tools."""
    body = as_chat({"model": "m", "prompt": "?", "tools": tools})
    with pytest.raises(NotTranslatable) as refused:
        outgoing(body, frozenset(), stream=False)
    assert refused.value.field == "tools"


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("minimal", "low"), *((one, one) for one in ("low", "medium", "high", "xhigh", "max"))],
)
def test_an_effort_has_the_name_that_it_has_there(effort: str, expected: str) -> None:
    assert asked(reasoning_effort=effort)["output_config"] == {"effort": expected}


@pytest.mark.parametrize("effort", ["none", None, "", "auto", "default", "disable"])
def test_no_effort_is_none(effort: Any) -> None:
    assert "output_config" not in asked(reasoning_effort=effort)


@pytest.mark.parametrize("effort", ["most", "MAX", 3, {}, []])
def test_an_effort_that_is_not_known_is_refused(effort: Any) -> None:
    with pytest.raises(NotTranslatable) as refused:
        asked(reasoning_effort=effort)
    assert refused.value.field == "reasoning_effort"
    assert "minimal, low, medium, high, xhigh, max" in refused.value.reason


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, {"effort": "ultra"}), ({"output_config": {"effort": "most"}}, {"effort": "most"})],
)
def test_a_backend_that_takes_its_own_fields_gets_an_effort_that_is_not_known(
    own: dict[str, Any], expected: dict[str, str]
) -> None:
    body = {"model": "m", "messages": [], "reasoning_effort": "ultra", **own}
    made = outgoing(body, frozenset({"output_config"}), stream=False).body
    assert made["output_config"] == expected


def test_a_refusal_in_two_places_is_sent_once() -> None:
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "refusal": "No."},
    ]
    body = outgoing({"model": "m", "messages": turns}, frozenset(), stream=False).body
    assert body["messages"][1]["content"] == [{"type": "text", "text": "No."}]


def test_a_refusal_is_what_the_assistant_said() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "refusal": "I cannot do that.", **mark},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "As", "refusal": " \n"},
        {"role": "assistant", "content": "I", "refusal": "said."},
    ]
    body = outgoing({"model": "m", "messages": turns}, frozenset(), stream=False).body
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"] * 2
    assert body["messages"][1]["content"] == [{"type": "text", "text": "I cannot do that.", **mark}]
    assert [block["text"] for block in body["messages"][3]["content"]] == ["As", "I", "said."]


def answer_schema(schema: dict[str, Any]) -> Any:
    """Return the schema of the tool through which an answer by a schema comes."""
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {"model": "m", "messages": [], "response_format": wanted}
    return outgoing(body, frozenset(), stream=False).body["tools"][0]["input_schema"]


def test_references_of_a_wrapped_schema_name_its_place_in_the_wrapper() -> None:
    shared = {"one": {"$ref": "#"}}
    refs = ["#", "#/items", "#/$defs/one", "#/definitions", "#/definitions2", "#name", "x#", 7]
    schema = {"type": "array", "items": {"anyOf": [{"$ref": ref} for ref in refs]}, "$defs": shared}
    moved = answer_schema(schema)
    assert moved["$defs"] == {"one": {"$ref": "#/properties/value"}}
    assert [one["$ref"] for one in moved["properties"]["value"]["items"]["anyOf"]] == [
        "#/properties/value",
        "#/properties/value/items",
        "#/$defs/one",
        "#/definitions",
        "#/properties/value/definitions2",
        "#name",
        "x#",
        7,
    ]
    assert schema["$defs"] == {"one": {"$ref": "#"}}


def test_only_references_of_a_wrapped_schema_are_changed_and_no_values() -> None:
    ref, moved_ref = {"$ref": "#"}, {"$ref": "#/properties/value"}
    values = {"const": ref, "enum": [ref], "default": ref, "examples": [ref]}
    named = {"default": ref, "$ref": {"type": "string"}}
    items = {"$ref": "#/%24defs/a", **values, "properties": named}
    inner = answer_schema({"type": "array", "items": items})["properties"]["value"]["items"]
    assert inner == items | {"properties": named | {"default": moved_ref}}


def test_references_of_a_schema_that_is_not_wrapped_stay() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert answer_schema(schema) == schema
