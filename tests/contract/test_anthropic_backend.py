"""Anthropic's Messages API as a backend: what is sent, what comes back, and what a bad answer costs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from hocket.gateway.backends import build
from hocket.gateway.backends.protocol import (
    Backend,
    BackendBroken,
    BackendError,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendUnreachable,
    Chunk,
)
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.messages import CallRequest, ChatMessage, Completion, OpenAIBody
from support.gateway.mock_anthropic import (
    AnthropicUpstream,
    block,
    ended,
    json_delta,
    message,
    running_anthropic,
    started,
    text,
    text_delta,
    tool_use,
)

NOW_MS = 1_800_000_000_000.0
LONG_MS = 60_000.0
MARK = {"type": "ephemeral"}
TIDE = {
    "name": "tide",
    "description": "The tide at a port",
    "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
}
CALL = {
    "id": "call:1",
    "type": "function",
    "function": {"name": "tide", "arguments": '{"port":"B"}'},
}


@pytest.fixture
async def upstream() -> AsyncIterator[AnthropicUpstream]:
    async with running_anthropic() as running:
        yield running


@asynccontextmanager
async def built(upstream: AnthropicUpstream, **fields: Any) -> AsyncIterator[Backend]:
    spec = BackendSpec(
        "b",
        "anthropic",
        "claude-1",
        base_url=upstream.base_url,
        api_key=SecretStr("sk-secret-1"),
        **fields,
    )
    backend = build(spec, lambda: NOW_MS)
    try:
        yield backend
    finally:
        await backend.close()


def as_it_came(**body: Any) -> CallRequest:
    body = {"model": "writer", "messages": [{"role": "user", "content": "Hi"}]} | body
    openai = OpenAIBody(path="chat/completions", body=body)
    return CallRequest(call_id="c", model="writer", openai=openai, deadline_at_ms=NOW_MS + LONG_MS)


async def sent(upstream: AnthropicUpstream, **body: Any) -> dict[str, Any]:
    """Return what is sent upstream for a body."""
    async with built(upstream) as backend:
        await backend.call(as_it_came(**body), timeout_ms=LONG_MS)
    return upstream.bodies[-1]


async def streamed(
    upstream: AnthropicUpstream, request: CallRequest, **fields: Any
) -> tuple[Any, list[Chunk]]:
    chunks: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        chunks.append(chunk)

    async with built(upstream, **fields) as backend:
        return await backend.call(request, timeout_ms=LONG_MS, chunks=take), chunks


# ---- requests -------------------------------------------------------------------------------


async def test_a_conversation_with_tools_goes_out_as_turns_and_blocks(
    upstream: AnthropicUpstream,
) -> None:
    body = await sent(
        upstream,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "No jokes."}]},
            {"role": "user", "content": "Tide?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call:2"}]},
            {"role": "tool", "tool_call_id": "call:1", "content": "5 m"},
            {"role": "tool", "tool_call_id": "call:2", "content": [{"type": "text", "text": "4"}]},
            {"role": "user", "content": "And?"},
        ],
        tools=[{"type": "function", "function": {**TIDE, "strict": True}}],
        tool_choice="required",
        parallel_tool_calls=False,
        max_completion_tokens=50,
        temperature=0.5,
        top_p=None,
        stop="END",
        user="u-1",
        reasoning_effort="minimal",
        seed=5,
    )
    assert body == {
        "model": "claude-1",
        "max_tokens": 50,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u-1"},
        "output_config": {"effort": "low"},
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "No jokes."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Tide?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "call_1", "name": "tide", "input": {"port": "B"}},
                    {"type": "tool_use", "id": "call_2", "name": "tide", "input": {"port": "B"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "5 m"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": [{"type": "text", "text": "4"}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [
            {
                "name": "tide",
                "description": "The tide at a port",
                "input_schema": TIDE["parameters"],
            }
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }
    assert upstream.paths == ["/v1/messages"]
    headers = upstream.headers[0]
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-secret-1", "2023-06-01")
    assert "Authorization" not in headers


async def test_images_and_files_go_out_as_blocks(upstream: AnthropicUpstream) -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,BBBB"}},
    ]
    body = await sent(upstream, messages=[{"role": "user", "content": parts}])
    assert body["messages"][0]["content"][1:] == [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        },
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
        },
    ]


async def test_marks_for_the_cache_go_on_from_wherever_they_stand(
    upstream: AnthropicUpstream,
) -> None:
    body = await sent(
        upstream,
        messages=[
            {
                "role": "system",
                "content": [{"type": "text", "text": "Long.", "cache_control": MARK}],
            },
            {"role": "user", "content": "Hi", "cache_control": MARK},
        ],
        tools=[{"type": "function", "function": TIDE, "cache_control": MARK}],
    )
    assert body["system"][0]["cache_control"] == MARK
    assert body["messages"][0]["content"][0]["cache_control"] == MARK
    assert body["tools"][0]["cache_control"] == MARK


async def test_a_longer_life_in_the_cache_needs_to_be_let_through(
    upstream: AnthropicUpstream,
) -> None:
    hour = {"role": "user", "content": "Hi", "cache_control": {**MARK, "ttl": "1h"}}
    with pytest.raises(BackendRefused, match=r"messages\[0\].cache_control.ttl.*pass_fields"):
        await sent(upstream, messages=[hour])
    async with built(upstream, pass_fields=frozenset({"cache_control", "service_tier"})) as backend:
        request = as_it_came(messages=[hour], service_tier="standard_only")
        await backend.call(request, timeout_ms=LONG_MS)
    assert upstream.bodies[-1]["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"
    assert upstream.bodies[-1]["service_tier"] == "standard_only"


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("functions", {"functions": [{"name": "x"}]}),
        ("modalities", {"modalities": ["text", "audio"]}),
        (r"tools\[0\].type", {"tools": [{"type": "custom", "custom": {}}]}),
        (
            r"messages\[0\].content\[0\]",
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        ),
        (r"messages\[0\].role", {"messages": [{"role": "function", "content": "x"}]}),
    ],
)
async def test_what_has_no_counterpart_is_refused_by_its_name_before_anybody_is_asked(
    upstream: AnthropicUpstream, field: str, body: dict[str, Any]
) -> None:
    with pytest.raises(BackendRefused, match=field):
        await sent(upstream, **body)
    assert not upstream.bodies


@pytest.mark.parametrize(
    ("choice", "sent_choice"),
    [
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "tide"}}, {"type": "tool", "name": "tide"}),
    ],
)
async def test_a_tool_that_must_be_called_is_not_replaced_by_an_answer_in_a_schema(
    upstream: AnthropicUpstream, choice: Any, sent_choice: dict[str, Any]
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    tools = [{"type": "function", "function": TIDE}]
    body = await sent(upstream, tools=tools, tool_choice=choice, response_format=form)
    assert ([tool["name"] for tool in body["tools"]], body["tool_choice"]) == (
        ["tide"],
        sent_choice,
    )


# ---- answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("stop_sequence", "stop"),
        ("refusal", "content_filter"),
        ("model_context_window_exceeded", "length"),
        ("something new", "stop"),
    ],
)
async def test_every_reason_of_the_end_has_its_name(
    upstream: AnthropicUpstream, stop_reason: str, finish_reason: str
) -> None:
    upstream.answer = upstream.sends(message(text("x"), stop_reason=stop_reason))
    async with built(upstream) as backend:
        made = await backend.call(as_it_came(), timeout_ms=LONG_MS)
    assert made.finish_reason == finish_reason


async def test_calls_of_tools_and_thoughts_come_back_whole(upstream: AnthropicUpstream) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    upstream.answer = upstream.sends(
        message(thought, text("Wait."), tool_use("tide", {"port": "Brest"}), stop_reason="tool_use")
    )
    async with built(upstream) as backend:
        made = await backend.call(as_it_came(), timeout_ms=LONG_MS)
        assert made.openai is not None
        again = made.openai["choices"][0]["message"]
        request = as_it_came(messages=[{"role": "user", "content": "Hi"}, again])
        await backend.call(request, timeout_ms=LONG_MS)
    (call,) = made.tool_calls
    assert (made.text, made.finish_reason) == ("Wait.", "tool_calls")
    assert (call["id"], call["function"]["name"]) == ("toolu_1", "tide")
    assert json.loads(call["function"]["arguments"]) == {"port": "Brest"}
    assert again["reasoning_content"] == "Hm."
    assert made.openai["usage"] == {
        "prompt_tokens": 120,
        "completion_tokens": 7,
        "total_tokens": 127,
        "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30},
    }
    assert upstream.bodies[-1]["messages"][1]["content"] == [
        thought,
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "Brest"}},
    ], "what came back goes out again as it was"


async def test_a_whole_reply_to_a_stream_keeps_its_thoughts(upstream: AnthropicUpstream) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    upstream.answer = upstream.sends(
        message(thought, tool_use("tide", {"port": "Brest"}), stop_reason="tool_use")
    )
    _, (chunk,) = await streamed(upstream, as_it_came(stream=True))
    assert chunk.openai is not None
    delta = chunk.openai["choices"][0]["delta"]
    assert (delta["reasoning_content"], delta["thinking_blocks"]) == ("Hm.", [thought])
    assert delta["tool_calls"][0]["index"] == 0


async def test_a_stream_brings_text_thoughts_and_calls_as_chunks(
    upstream: AnthropicUpstream,
) -> None:
    upstream.answer = upstream.streams(
        started(),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "s"},
        ),
        *block(1, text(""), text_delta("Wa"), text_delta("it.")),
        *block(2, tool_use("tide", {}), json_delta('{"port"'), json_delta(':"B"}')),
        *block(3, tool_use("now", {}, "toolu_2")),
        *ended("tool_use"),
    )
    made, chunks = await streamed(upstream, as_it_came())
    assert upstream.bodies[0]["stream"] is True
    assert (made.text, made.finish_reason) == ("Wait.", "tool_calls")
    assert [call["function"]["arguments"] for call in made.tool_calls] == ['{"port":"B"}', "{}"]
    assert [call["id"] for call in made.tool_calls] == ["toolu_1", "toolu_2"]
    assert (made.input_tokens, made.output_tokens, made.cached_tokens) == (120, 7, 20)
    assert (made.cache_write_tokens, made.estimated) == (30, False)
    events = [chunk.openai for chunk in chunks if chunk.openai]
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    assert deltas[0] == {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    assert {
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    } in deltas
    assert [chunk.is_usage for chunk in chunks].count(True) == 1
    assert events[-1]["usage"]["prompt_tokens"] == 120


SCHEMAS = {
    "object": ({"type": "object", "properties": {"port": {"type": "string"}}}, {"port": "Brest"}),
    "list": ({"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": {}}}, ["Brest"]),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", SCHEMAS)
async def test_an_answer_in_a_schema_comes_by_a_tool_and_reads_as_text(
    upstream: AnthropicUpstream, kind: str, stream: bool
) -> None:
    schema, value = SCHEMAS[kind]
    said = value if kind == "object" else {"value": value}
    half = len(json.dumps(said)) // 2
    parts = json.dumps(said)[:half], json.dumps(said)[half:]
    if stream:
        events = block(0, tool_use("answer", {}), *map(json_delta, parts))
        upstream.answer = upstream.streams(started(), *events, *ended("tool_use"))
    else:
        upstream.answer = upstream.sends(message(tool_use("answer", said), stop_reason="tool_use"))
    request = CallRequest(
        call_id="c",
        model="m",
        messages=(ChatMessage(role="user", content="Where?"),),
        response_schema=schema,
        deadline_at_ms=NOW_MS + LONG_MS,
    )
    if stream:
        made, _ = await streamed(upstream, request)
    else:
        async with built(upstream) as backend:
            made = await backend.call(request, timeout_ms=LONG_MS)
    assert (made.data, json.loads(made.text)) == (value, value)
    assert (made.tool_calls, made.finish_reason) == ((), "stop")
    (tool,) = upstream.bodies[0]["tools"]
    assert tool["input_schema"]["type"] == "object"
    assert upstream.bodies[0]["tool_choice"] == {"type": "tool", "name": "answer"}
    if kind == "list":
        assert tool["input_schema"]["$defs"] == {"P": {}}, "references still point somewhere"


@pytest.mark.parametrize("parts", [(), ("",), ("{}",)])
async def test_an_empty_object_is_an_answer_in_a_stream_too(
    upstream: AnthropicUpstream, parts: tuple[str, ...]
) -> None:
    events = block(0, tool_use("answer", {}), *map(json_delta, parts))
    upstream.answer = upstream.streams(started(), *events, *ended("tool_use"))
    made, _ = await streamed(upstream, as_it_came(response_format={"type": "json_object"}))
    assert made.text == "{}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answers", [0, 1, 2])
async def test_what_a_model_says_before_its_answer_in_a_schema_is_left_out(
    upstream: AnthropicUpstream, answers: int, stream: bool
) -> None:
    ports = ("Brest", "Calais")[:answers]
    if stream:
        events = block(0, text("I "), text_delta("answer:"))
        for at, port in enumerate(ports, start=1):
            events += block(at, tool_use("answer", {}), json_delta(f'{{"port": "{port}"}}'))
        upstream.answer = upstream.streams(started(), *events, *ended())
    else:
        calls = [tool_use("answer", {"port": port}) for port in ports]
        upstream.answer = upstream.sends(message(text("I answer:"), *calls))
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    request = as_it_came(response_format={"type": "json_object"}, thinking=thinking)
    if stream:
        made, chunks = await streamed(upstream, request)
        assert "".join(chunk.text for chunk in chunks) == made.text
    else:
        async with built(upstream) as backend:
            made = await backend.call(request, timeout_ms=LONG_MS)
    assert made.text == ('{"port": "Brest"}' if answers else "I answer:")
    assert (made.tool_calls, made.finish_reason) == ((), "stop")


@pytest.mark.parametrize(
    ("thinking", "choice"),
    [
        ({"type": "disabled"}, {"type": "tool", "name": "answer"}),
        ({"type": "enabled", "budget_tokens": 1_024}, {"type": "auto"}),
        ({"type": "adaptive"}, {"type": "auto"}),
    ],
)
async def test_only_a_model_that_thinks_is_free_not_to_answer_in_a_schema(
    upstream: AnthropicUpstream, thinking: dict[str, Any], choice: dict[str, Any]
) -> None:
    body = await sent(upstream, response_format={"type": "json_object"}, thinking=thinking)
    assert body["tool_choice"] == choice


# ---- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "then", "error"),
    [
        ((), "", BackendBroken),
        ((), "cut", BackendUnreachable),
        (
            ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},),
            "",
            BackendBroken,
        ),
        (({"type": "content_block_delta", "index": 9, "delta": {}},), "", BackendReplyMalformed),
        (
            (
                {
                    "type": "message_delta",
                    "delta": {},
                    "usage": {"output_tokens": -1},
                },
            ),
            "",
            BackendReplyMalformed,
        ),
        ((5,), "", BackendReplyMalformed),
    ],
)
async def test_a_stream_that_breaks_says_what_it_used_until_then(
    upstream: AnthropicUpstream, rest: tuple[Any, ...], then: str, error: type[BackendError]
) -> None:
    begun = block(0, text(""), text_delta("ti"), text_delta("dal"))[:-1]
    upstream.answer = upstream.streams(started(), *begun, *rest, then=then)
    with pytest.raises(error) as failed:
        await streamed(upstream, as_it_came())
    spent = failed.value.spent
    assert (spent.input_tokens, spent.cached_tokens, spent.cache_write_tokens) == (120, 20, 30)
    assert (spent.output_tokens, spent.estimated) == (2, True)


HOSTILE = {
    "no blocks": {"usage": {"input_tokens": 40, "output_tokens": 1}},
    "blocks that are none": message() | {"content": [5]},
    "text that is none": message({"type": "text", "text": {"a": 1}}),
    "counts below none": message(text("x")) | {"usage": {"input_tokens": -1}},
    "counts that are text": message(text("x")) | {"usage": {"input_tokens": "many"}},
    "counts beyond belief": message(text("x")) | {"usage": {"input_tokens": 10**12}},
    "usage that is a list": {**message(text("x")), "usage": [1]},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_a_reply_that_is_no_message_is_a_typed_error(
    upstream: AnthropicUpstream, body: dict[str, Any]
) -> None:
    upstream.answer = upstream.sends(body)
    async with built(upstream) as backend:
        with pytest.raises(BackendReplyMalformed) as failed:
            await backend.call(as_it_came(), timeout_ms=LONG_MS)
    assert failed.value.info().component == "b"
    if "content" not in body:
        assert failed.value.spent.input_tokens == 40


async def test_a_stream_opens_no_more_blocks_than_are_believed(
    upstream: AnthropicUpstream,
) -> None:
    opened = [
        {"type": "content_block_start", "index": at, "content_block": text("")} for at in range(65)
    ]
    upstream.answer = upstream.streams(started(), *opened, *ended())
    with pytest.raises(BackendReplyMalformed, match="more than 64 blocks"):
        await streamed(upstream, as_it_came())


async def test_a_stream_that_fails_before_it_says_anything_leaves_room_for_another_backend(
    upstream: AnthropicUpstream,
) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.answer = upstream.streams(started(), {"type": "ping"}, error)
    taken: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        taken.append(chunk)

    async with built(upstream) as backend:
        with pytest.raises(BackendBroken) as failed:
            await backend.call(as_it_came(), timeout_ms=LONG_MS, chunks=take)
    assert (taken, failed.value.may_move_on) == ([], True)


@pytest.mark.parametrize("told", [None, {"input_tokens": 70}])
async def test_a_stream_that_never_counts_what_it_wrote_is_estimated(
    upstream: AnthropicUpstream, told: Any
) -> None:
    end, last = ended()
    written = block(0, text(""), text_delta("tidal " * 20))
    upstream.answer = upstream.streams(started(), *written, {**end, "usage": told}, last)
    made, chunks = await streamed(upstream, as_it_came())
    assert (made.input_tokens, made.output_tokens, made.estimated) == (120, 30, True)
    assert not any(chunk.is_usage for chunk in chunks), "the caller gets the estimate"


@pytest.mark.parametrize(
    ("kind", "error"),
    [("rate_limit_error", BackendRateLimited), ("invalid_request_error", BackendRefused)],
)
async def test_an_error_in_a_stream_has_the_class_of_its_type(
    upstream: AnthropicUpstream, kind: str, error: type[BackendError]
) -> None:
    said = {"type": "error", "error": {"type": kind, "message": "no luck"}}
    upstream.answer = upstream.streams(started(), said)
    with pytest.raises(error, match="no luck"):
        await streamed(upstream, as_it_came())


@pytest.mark.parametrize("way", ["whole", "stream", "whole instead of a stream"])
async def test_an_error_instead_of_a_message_costs_nothing(
    upstream: AnthropicUpstream, way: str
) -> None:
    said = {"type": "error", "error": {"type": "overloaded_error", "message": "no luck"}}
    upstream.answer = upstream.streams(said) if way == "stream" else upstream.sends(said)
    asking = sent(upstream) if way == "whole" else streamed(upstream, as_it_came())
    with pytest.raises(BackendBroken, match="no luck") as failed:
        await asking
    assert failed.value.spent == Completion()


async def test_the_key_comes_back_in_no_error(upstream: AnthropicUpstream) -> None:
    error = {"type": "error", "error": {"message": "bad key sk-secret-1"}}
    upstream.answer = upstream.streams(started(), error)
    with pytest.raises(BackendBroken) as failed:
        await streamed(upstream, as_it_came())
    assert "sk-secret-1" not in str(failed.value)
    assert "[redacted]" in str(failed.value)


async def test_a_stream_ends_with_its_last_event_and_waits_for_nothing_behind_it(
    upstream: AnthropicUpstream,
) -> None:
    upstream.answer = upstream.streams(
        started(), *block(0, text(""), text_delta("x")), *ended(), then="hang"
    )
    made, _ = await streamed(upstream, as_it_came())
    assert (made.text, made.output_tokens) == ("x", 7)


async def test_a_legacy_completion_is_asked_as_a_turn(upstream: AnthropicUpstream) -> None:
    openai = OpenAIBody(path="completions", body={"model": "w", "prompt": "Once"})
    request = CallRequest(call_id="c", model="w", openai=openai, deadline_at_ms=NOW_MS + LONG_MS)
    async with built(upstream) as backend:
        made = await backend.call(request, timeout_ms=LONG_MS)
    assert (made.text, made.openai) == ("tidal", None)
    assert upstream.bodies[0]["messages"][0]["content"] == [{"type": "text", "text": "Once"}]


def _legacy(**body: Any) -> CallRequest:
    openai = OpenAIBody(path="completions", body={"model": "w", "prompt": "Once", **body})
    return CallRequest(call_id="c", model="w", openai=openai, deadline_at_ms=NOW_MS + LONG_MS)


async def test_a_legacy_completion_keeps_its_parameters(upstream: AnthropicUpstream) -> None:
    asked = _legacy(prompt=["Once"], stop=["END"], top_p=0.5, max_tokens=9, n=1, best_of=1)
    async with built(upstream) as backend:
        await backend.call(asked, timeout_ms=LONG_MS)
    (body,) = upstream.bodies
    assert (body["stop_sequences"], body["top_p"], body["max_tokens"]) == (["END"], 0.5, 9)
    assert body["messages"][0]["content"] == [{"type": "text", "text": "Once"}]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("n", {"n": 2}),
        ("best_of", {"best_of": 3}),
        ("logprobs", {"logprobs": 5}),
        ("echo", {"echo": True}),
        ("suffix", {"suffix": "The end."}),
        ("prompt", {"prompt": ["Once", "Twice"]}),
        ("prompt", {"prompt": [7, 8]}),
        ("prompt", {"prompt": [[7, 8]]}),
    ],
)
async def test_what_a_legacy_completion_cannot_have_is_refused(
    upstream: AnthropicUpstream, field: str, body: dict[str, Any]
) -> None:
    """Two prompts would be answered as one, and token ids as the digits that they are written in."""
    async with built(upstream) as backend:
        with pytest.raises(BackendRefused, match=f"`{field}`"):
            await backend.call(_legacy(**body), timeout_ms=LONG_MS)
    assert not upstream.bodies


async def test_an_endless_id_does_not_stand_in_every_chunk(upstream: AnthropicUpstream) -> None:
    begun = started()
    begun["message"]["id"] = "i" * 1_000_000
    text_block = block(0, text(""), text_delta("A"), text_delta("B"))
    upstream.answer = upstream.streams(begun, *text_block, *ended())
    _, chunks = await streamed(upstream, as_it_came())
    assert {len(one.openai["id"]) for one in chunks if one.openai} == {200}


async def test_only_thoughts_go_out_as_thoughts(upstream: AnthropicUpstream) -> None:
    """Other blocks, and a longer lifetime in the cache, cost more than is booked."""
    long = {"type": "ephemeral", "ttl": "1h"}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    blocks = [
        {**thought, "cache_control": long},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "Long.", "cache_control": long},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": ["thinking"]},
        7,
    ]
    said = {"role": "assistant", "content": "Yes."}
    messages = [{**said, "thinking_blocks": blocks}, {**said, "thinking_blocks": 7}]
    body = await sent(upstream, messages=messages)
    plain = {"type": "text", "text": "Yes."}
    redacted = {"type": "redacted_thinking", "data": "d"}
    assert body["messages"][-1]["content"] == [thought, redacted, plain, plain]


@pytest.mark.parametrize(
    "arguments", ['{"a":"\\ud800"}', "[" * 900 + "]" * 900, '{"a":NaN}', '{"a":1,"a":2}']
)
async def test_arguments_that_are_no_plain_json_go_out_as_text(
    upstream: AnthropicUpstream, arguments: str
) -> None:
    call = {**CALL, "function": {"name": "tide", "arguments": arguments}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = await sent(upstream, messages=[turn])
    (block,) = body["messages"][-1]["content"]
    assert block["input"] == {"arguments": arguments}
