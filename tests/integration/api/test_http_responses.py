"""OpenAI's Responses API at the HTTP door of a real gateway: the official client and OpenAI's Agents SDK
with its defaults, unchanged."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from support.gateway.http_house import House, client, house, upstream
from support.gateway.mock_upstream import Upstream, delta

__all__ = ["client", "house", "upstream"]

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TIDE: Any = {
    "type": "function",
    "name": "tide",
    "description": "The tide at a port",
    "parameters": {
        "type": "object",
        "properties": {"port": {"type": "string", "enum": ["Brest"]}},
        "required": ["port"],
        "additionalProperties": False,
    },
    "strict": True,
}


async def events_of(made: Any) -> list[Any]:
    """Return the events of a stream, each of which must be what the official types say, in order."""
    events = [event async for event in made]
    for event in events:
        EVENT.validate_python(event.model_dump(mode="json", by_alias=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


async def test_a_response_is_made_of_a_chat_completion_and_booked_as_one(
    house: House, client: AsyncOpenAI, upstream: Upstream
) -> None:
    made = await client.responses.create(
        model="scripted",
        instructions="Be brief.",
        input="How high?",
        max_output_tokens=50,
        metadata={"a": "b"},
        extra_headers={"X-Hocket-Run-Id": "resp-1"},
    )
    Response.model_validate(made.model_dump(mode="json", by_alias=True))
    assert (made.output_text, made.status, made.model) == ("tidal", "completed", "scripted")
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (120, 7)
    assert made.usage.input_tokens_details.cached_tokens == 20
    assert (made.metadata, made.store, made.instructions) == ({"a": "b"}, False, "Be brief.")
    (sent,) = upstream.bodies
    assert sent == {
        "model": "m-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How high?"},
        ],
        "max_tokens": 50,
    }
    record = await house.booked("resp-1")
    assert (record.input_tokens, record.output_tokens, record.status) == (120, 7, "ok")
    assert record.cost_usd > 0


async def test_a_stream_has_every_event_that_clients_wait_for(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    made = await client.responses.create(model="scripted", input="How high?", stream=True)
    events = await events_of(made)
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.delta for event in events[4:6]] == ["ti", "dal"]
    done = events[-1].response
    assert (done.output_text, done.usage.input_tokens) == ("tidal", 120)


async def test_the_clients_own_stream_puts_a_call_of_a_function_together(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    first = {"index": 0, "id": "t1", "function": {"name": "tide", "arguments": ""}}
    second = {"index": 1, "id": "t2", "function": {"name": "tide", "arguments": "{}"}}
    more = [{"index": 0, "function": {"arguments": part}} for part in ('{"port":', '"Brest"}')]
    upstream.answer = upstream.streams(
        delta(reasoning_content="Hm."),
        delta(content="Wait."),
        *(delta(tool_calls=[call]) for call in (first, second, *more)),
        delta("tool_calls"),
    )
    async with client.responses.stream(model="scripted", input="x", tools=[TIDE]) as stream:
        kinds = [event.type async for event in stream]
        made = await stream.get_final_response()
    thought, text, *calls = made.output
    assert (thought.type, text.type, made.output_text) == ("reasoning", "message", "Wait.")
    assert [(one.call_id, one.arguments) for one in calls if one.type == "function_call"] == [
        ("t1", '{"port":"Brest"}'),
        ("t2", "{}"),
    ]
    assert kinds.index("response.reasoning_text.done") < kinds.index("response.output_text.delta")
    assert kinds.count("response.output_item.done") == 4


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_the_reasoning_that_led_to_a_call_goes_back_with_it(
    client: AsyncOpenAI, upstream: Upstream, name: str
) -> None:
    call = {"index": 0, "id": "t1", "function": {"name": "tide", "arguments": "{}"}}
    upstream.answer = upstream.streams(
        delta(**{name: "Hm."}), delta(tool_calls=[call]), delta("tool_calls")
    )
    async with client.responses.stream(model="scripted", input="x", tools=[TIDE]) as stream:
        await stream.until_done()
        made = await stream.get_final_response()
    again: Any = [item.model_dump(mode="json", exclude_unset=True) for item in made.output]
    again.append({"type": "function_call_output", "call_id": "t1", "output": "6 m"})
    upstream.answer = upstream.completes
    await client.responses.create(model="scripted", input=again, tools=[TIDE])
    turn, result = upstream.bodies[-1]["messages"]
    assert [one["id"] for one in turn["tool_calls"]] == [result["tool_call_id"]] == ["t1"]
    assert turn.get("reasoning_content") == ("Hm." if name == "reasoning_content" else None)


async def test_a_refusal_completes_a_response(client: AsyncOpenAI, upstream: Upstream) -> None:
    upstream.answer = upstream.streams(delta(refusal="No."), delta("stop"))
    made = await client.responses.create(model="scripted", input="x", stream=True)
    done = (await events_of(made))[-1].response
    assert (done.status, done.incomplete_details) == ("completed", None)
    assert [part.type for part in done.output[0].content] == ["refusal"]


@pytest.mark.parametrize("model", ["engine", "claude"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_is_called_and_what_it_gave_goes_back_in(
    client: AsyncOpenAI, stream: bool, model: str
) -> None:
    conversation: Any = [{"role": "user", "content": "How high is the tide in Brest?"}]

    async def asked() -> Response:
        if not stream:
            return await client.responses.create(model=model, input=conversation, tools=[TIDE])
        made = await client.responses.create(
            model=model, input=conversation, tools=[TIDE], stream=True
        )
        return (await events_of(made))[-1].response  # type: ignore[no-any-return]

    called = await asked()
    (call,) = called.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("tide", {"port": "Brest"})
    conversation += [item.model_dump(mode="json", exclude_none=True) for item in called.output]
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "5 m"})
    answered = await asked()
    assert answered.output_text
    assert [item.type for item in answered.output] == ["message"]


class Place(BaseModel):
    port: str
    metres: int


@pytest.mark.parametrize("model", ["engine", "claude"])
async def test_an_answer_fits_the_schema_that_was_asked_for(
    client: AsyncOpenAI, model: str
) -> None:
    made = await client.responses.parse(model=model, input="Where?", text_format=Place)
    assert isinstance(made.output_parsed, Place)


async def test_an_answer_that_was_cut_is_incomplete(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="engine", input="Talk.", max_output_tokens=3)
    assert made.incomplete_details is not None
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_a_stream_that_breaks_says_so_with_its_last_events(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.streams(delta(content="ti"), then="cut")
    made = await client.responses.create(model="scripted", input="x", stream=True)
    events = await events_of(made)
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2].code == "backend_unreachable"
    assert (events[-1].response.status, events[-1].response.error.code) == (
        "failed",
        "server_error",
    )


async def test_what_fails_before_the_first_piece_is_a_plain_error(
    client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.answer = upstream.fails(400)
    with pytest.raises(openai.BadRequestError, match="no luck"):
        await client.responses.create(model="scripted", input="x", stream=True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="poet", input="x")
    with pytest.raises(openai.RateLimitError, match="budget"):
        await client.responses.create(
            model="engine", input="x", extra_headers={"X-Hocket-Budget-Usd": "0"}
        )


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("store", {"store": True}),
        ("background", {"background": True}),
        ("conversation", {"conversation": "conv_1"}),
        ("truncation", {"truncation": "auto"}),
        ("service_tier", {"service_tier": "flex"}),
        ("messages", {"extra_body": {"messages": []}}),
        ("n", {"extra_body": {"n": 2}}),
        ("provider", {"extra_body": {"provider": "x"}}),
        ("tools.0", {"tools": [{"type": "web_search"}]}),
        ("include.0", {"include": ["message.output_text.logprobs"]}),
        ("input", {"input": [{"type": "item_reference", "id": "x"}]}),
    ],
)
async def test_what_is_not_done_here_is_refused_by_its_name(
    client: AsyncOpenAI, upstream: Upstream, field: str, asked: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(**{"model": "scripted", "input": "x", **asked})
    assert refused.value.param is not None
    assert refused.value.param.startswith(field)
    assert not upstream.bodies


async def test_a_field_that_is_let_through_goes_on(client: AsyncOpenAI, upstream: Upstream) -> None:
    await client.responses.create(
        model="tiered", input="x", service_tier="flex", store=False, extra_body={"top_k": 5}
    )
    assert (upstream.bodies[0]["service_tier"], upstream.bodies[0]["top_k"]) == ("flex", 5)
    assert "store" not in upstream.bodies[0]


# ---- OpenAI's Agents SDK --------------------------------------------------------------------


@pytest.fixture
def sdk(house: House, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The SDK as it comes, told by its environment where OpenAI is; it sends its traces nowhere."""
    import agents  # takes seconds: not for whoever only collects this module

    monkeypatch.setenv("OPENAI_BASE_URL", house.gateway.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none needed")
    agents.set_tracing_disabled(True)
    return agents


@pytest.mark.parametrize(
    ("model", "stream"), [("engine", False), ("engine", True), ("claude", True)]
)
async def test_an_agent_of_openais_sdk_runs_with_its_defaults(
    sdk: Any, model: str, stream: bool
) -> None:
    def tide(port: str) -> str:
        """Say how high the tide is."""
        return f"5 m at {port}"

    tools = [sdk.function_tool(tide)]
    agent = sdk.Agent(name="pilot", instructions="Be brief.", model=model, tools=tools)
    if stream:
        made = sdk.Runner.run_streamed(agent, "How high is the tide?")
        kinds = [event.type async for event in made.stream_events()]
        assert "raw_response_event" in kinds
    else:
        made = await sdk.Runner.run(agent, "How high is the tide?")
    assert [item.type for item in made.new_items] == [
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    assert isinstance(made.final_output, str)
    assert made.final_output


async def test_an_agent_of_openais_sdk_answers_in_a_type(sdk: Any) -> None:
    agent = sdk.Agent(name="pilot", model="engine", output_type=Place)
    made = await sdk.Runner.run(agent, "Where?")
    assert isinstance(made.final_output, Place)
