"""The emulator's Messages API: the official `anthropic` client works against it unchanged, and the
gateway's backend gets from it what it gets from the real one."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from hocket.emulator.configuration import parse
from hocket.emulator.running import running
from hocket.gateway.backends import build
from hocket.gateway.backends.protocol import Backend, BackendBroken, BackendRateLimited, Chunk
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.messages import CallRequest, OpenAIBody

NOW_MS = 1_800_000_000_000.0
LONG_MS = 60_000.0
FAST = {"decode_tokens_per_s": 1e6, "batch_tokens_per_s": 1e6, "prefill_tokens_per_s": 1e6}
SCHEMA = {
    "type": "object",
    "properties": {"port": {"type": "string", "enum": ["Brest"]}},
    "required": ["port"],
}
TOOL: Any = {"name": "tide", "description": "The tide at a port", "input_schema": SCHEMA}
ASK: Any = [{"role": "user", "content": "How high is the tide in Brest?"}]
LONG = {"type": "text", "text": "word " * 1_600, "cache_control": {"type": "ephemeral"}}


@dataclass
class Emulated:
    """An engine, and its official client."""

    url: str
    client: Any

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}/emulator/{path}", json=body) as response,
        ):
            return await response.json()

    async def create(self, **fields: Any) -> Any:
        body = {"model": "llm", "max_tokens": 100, "messages": ASK, **fields}
        return await self.client.messages.create(**body)


@pytest.fixture
async def emulated() -> AsyncIterator[Emulated]:
    from anthropic import AsyncAnthropic  # takes a second: not for whoever only collects this

    profile = {"model": "llm", "cache_blocks": 1_000, "block_tokens": 16, **FAST}
    engines = parse({"engines": [{"port": 0, "profile": profile}]})
    async with running(engines) as (engine,):
        client = AsyncAnthropic(base_url=engine.url, api_key="none", max_retries=0)
        async with client:
            yield Emulated(engine.url, client)


# ---- the official client --------------------------------------------------------------------


async def test_a_message_is_answered_whole_and_as_a_stream_alike(emulated: Emulated) -> None:
    made = await emulated.create()
    assert (made.type, made.role, made.stop_reason) == ("message", "assistant", "end_turn")
    text = made.content[0].text
    assert made.usage.output_tokens == len(text) // 4
    body = {"model": "llm", "max_tokens": 100, "messages": ASK}
    async with emulated.client.messages.stream(**body) as stream:
        pieces = [piece async for piece in stream.text_stream]
        whole = await stream.get_final_message()
    assert ("".join(pieces), whole.content[0].text) == (text, text)
    assert whole.usage.output_tokens == made.usage.output_tokens


async def test_a_tool_is_called_and_its_result_answered(emulated: Emulated) -> None:
    made = await emulated.create(tools=[TOOL])
    (call,) = made.content
    assert (made.stop_reason, call.name, call.input) == ("tool_use", "tide", {"port": "Brest"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "5 m"}
    turns = [
        *ASK,
        {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
        {"role": "user", "content": [result]},
    ]
    answered = await emulated.create(tools=[TOOL], messages=turns)
    assert answered.content[0].type == "text"
    async with emulated.client.messages.stream(
        model="llm",
        max_tokens=50,
        messages=ASK,
        tools=[TOOL],
        tool_choice={"type": "tool", "name": "tide"},
    ) as stream:
        whole = await stream.get_final_message()
    assert whole.content[0].input == {"port": "Brest"}


async def test_a_marked_beginning_is_written_to_the_cache_and_then_read(
    emulated: Emulated,
) -> None:
    first = (await emulated.create(system=[LONG])).usage
    again = (await emulated.create(system=[LONG])).usage
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens >= 2_000
    assert again.cache_read_input_tokens >= 1_984
    total = [
        one.input_tokens + one.cache_read_input_tokens + one.cache_creation_input_tokens
        for one in (first, again)
    ]
    assert total[0] == total[1]
    unmarked = (await emulated.create(system=[{**LONG, "cache_control": None}])).usage
    assert (unmarked.cache_read_input_tokens, unmarked.cache_creation_input_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty"),
        (
            {
                "messages": [
                    *ASK,
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]},
                ]
            },
            "no `tool_result`",
        ),
        ({"tools": [{"name": "x", "input_schema": {}}]}, "input_schema"),
        ({"tool_choice": {"type": "sometimes"}, "tools": [TOOL]}, "tool_choice"),
    ],
)
async def test_what_the_real_api_refuses_is_refused(
    emulated: Emulated, fields: dict[str, Any], said: str
) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match=said) as refused:
        await emulated.create(**fields)
    assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


async def test_faults_come_in_anthropics_shape(emulated: Emulated) -> None:
    import anthropic

    script = [
        {"kind": "status", "status": 429, "retry_after_s": 3},
        {"kind": "status", "status": 529},
        {"kind": "disconnect", "after_tokens": 2},
    ]
    await emulated.send("POST", "script", script)
    with pytest.raises(anthropic.RateLimitError) as limited:
        await emulated.create()
    assert limited.value.response.headers["retry-after"] == "3"
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        await emulated.create()
    assert overloaded.value.status_code == 529
    assert overloaded.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    with pytest.raises(anthropic.APIConnectionError):
        await emulated.create()
    with pytest.raises(anthropic.NotFoundError):
        await emulated.create(model="other")


# ---- the gateway's backend ------------------------------------------------------------------


@pytest.fixture
async def backend(emulated: Emulated) -> AsyncIterator[Backend]:
    built = build(BackendSpec("b", "anthropic", "llm", base_url=emulated.url), lambda: NOW_MS)
    yield built
    await built.close()


def call(**body: Any) -> CallRequest:
    openai = OpenAIBody(path="chat/completions", body={"model": "m", "messages": ASK, **body})
    return CallRequest(call_id="c", model="m", openai=openai, deadline_at_ms=NOW_MS + LONG_MS)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_gateways_backend_runs_a_whole_conversation_upon_it(
    emulated: Emulated, backend: Backend, stream: bool
) -> None:
    chunks: list[Chunk] = []

    async def take(chunk: Chunk) -> None:
        chunks.append(chunk)

    async def asked(**body: Any) -> Any:
        return await backend.call(call(**body), timeout_ms=LONG_MS, chunks=take if stream else None)

    tools = [{"type": "function", "function": {"name": "tide", "parameters": SCHEMA}}]
    system = {"role": "system", "content": [LONG]}
    first = await asked(messages=[system, *ASK], tools=tools)
    (made,) = first.tool_calls
    assert first.finish_reason == "tool_calls"
    assert json.loads(made["function"]["arguments"]) == {"port": "Brest"}
    turns = [
        system,
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": made["id"], "content": "5 m"},
    ]
    second = await asked(messages=turns, tools=tools)
    assert (bool(second.text), second.finish_reason) == (True, "stop")
    assert (first.cached_tokens, first.cache_write_tokens > 2_000) == (0, True)
    assert second.cached_tokens > 1_900
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    assert json.loads((await asked(response_format=form)).text) == {"port": "Brest"}
    cut = await asked(max_tokens=3)
    assert (cut.finish_reason, cut.output_tokens) == ("length", 3)
    journal = (await emulated.send("GET", "journal"))["requests"]
    metered = [(one["prompt_tokens"], one["completion_tokens"]) for one in journal[:2]]
    assert metered == [(one.input_tokens, one.output_tokens) for one in (first, second)]
    assert not stream or any(chunk.is_usage for chunk in chunks)


async def test_the_gateways_backend_types_its_faults(emulated: Emulated, backend: Backend) -> None:
    script = [
        {"kind": "status", "status": 429, "retry_after_s": 3},
        {"kind": "status", "status": 529},
    ]
    await emulated.send("POST", "script", script)
    with pytest.raises(BackendRateLimited) as limited:
        await backend.call(call(), timeout_ms=LONG_MS)
    assert limited.value.info().retry_at_ms == NOW_MS + 3_000
    with pytest.raises(BackendBroken):
        await backend.call(call(), timeout_ms=LONG_MS)
