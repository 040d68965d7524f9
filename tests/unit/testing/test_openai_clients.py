"""Frameworks inside a handler: their model calls go through the platform, and are not made twice."""

import json
from typing import Any

import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

from hocket.schemas.messages import CallRequest
from hocket.testing import Answer, ModelFails, Play, PlayedCall
from hocket.worker import Context
from support.places import ROOT

NODE: dict[str, Any] = {"type": "python", "handler": "m:f", "retry": {"max_attempts": 2}}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}
CALLS = 10


def play_of(handler: Any) -> Play:
    play = Play(PIPELINE)
    play.node("a", handler)
    return play


async def plain(_given: Any, context: Context) -> dict[str, Any]:
    client = context.openai_client()
    reply = await client.chat.completions.create(
        model="writer", messages=[{"role": "user", "content": "Hello"}], max_tokens=50
    )
    said = ""
    stream = await client.chat.completions.create(
        model="writer",
        messages=[{"role": "user", "content": "Again"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        tokens = chunk.usage and chunk.usage.total_tokens
    vectors = await client.embeddings.create(model="numbers", input=["one"])
    return {
        "first": reply.choices[0].message.content,
        "tokens": tokens,
        "second": said,
        "vector": vectors.data[0].embedding,
    }


def test_chat_streams_and_embeddings_go_through_the_context() -> None:
    play = play_of(plain)
    play.model("writer", "Hi", Answer("Hi again", input_tokens=2, output_tokens=3, cost_usd="0.01"))
    play.model("numbers", Answer(embeddings=[[0.5, 0.25]]))
    played = play.run()
    assert played.output == {
        "first": "Hi",
        "second": "Hi again",
        "tokens": 5,
        "vector": [0.5, 0.25],
    }, str(played)
    assert [call.prompt for call in played.calls] == ["Hello", "Again", ""]
    first: CallRequest = played.calls[0].request
    assert first.attribution.step == "a"
    assert first.openai is not None
    assert first.openai.body["max_tokens"] == 50
    assert str(played.cost_usd) == "0.01"


def test_what_the_gateway_says_is_the_clients_error_and_the_steps() -> None:
    seen: list[openai.APIStatusError] = []

    async def asks(_given: Any, context: Context) -> None:
        try:
            await plain(None, context)
        except openai.RateLimitError as error:
            seen.append(error)
            raise

    play = Play(PIPELINE | {"nodes": {"a": NODE | {"retry": {"max_attempts": 1}}}})
    play.node("a", asks)
    play.model("writer", ModelFails("rate_limited", code="slow_down"))
    played = play.run()
    assert seen[0].code == "slow_down"
    assert played.error is not None
    assert (played.error.code, played.error.error_class) == ("slow_down", "rate_limited")


def test_other_endpoints_say_that_they_are_not_there() -> None:
    async def responds(_given: Any, context: Context) -> None:
        await context.openai_client().responses.create(model="writer", input="Hi")

    played = play_of(responds).run()
    assert played.error is not None
    assert played.error.code == "not_found"
    assert "Set the framework to chat completions" in played.error.message


# ---- an agent of openai-agents, killed at every point ----------------------------------------


@function_tool
def look_up(number: int) -> str:
    """Look something up."""
    return f"page {number}"


async def agent(_given: Any, context: Context) -> str:
    model = OpenAIChatCompletionsModel("writer", context.openai_client())
    reader = Agent(name="Reader", instructions="Read.", model=model, tools=[look_up])
    config = RunConfig(tracing_disabled=True)
    result = await Runner.run(reader, "Read all.", max_turns=CALLS + 1, run_config=config)
    return str(result.final_output)


def turns(request: CallRequest) -> Answer:
    """Ask for a tool nine times, and then answer."""
    assert request.openai is not None
    read = [m for m in request.openai.body["messages"] if m["role"] == "tool"]
    assert [m["content"] for m in read] == [f"page {i}" for i in range(len(read))]
    if len(read) == CALLS - 1:
        return Answer("all read", cost_usd="0.01")
    arguments = json.dumps({"number": len(read)})
    function = {"name": "look_up", "arguments": arguments}
    call = {"id": f"call-{len(read)}", "type": "function", "function": function}
    return Answer(tool_calls=[call], cost_usd="0.01")


def calls_of(play: Play, *, deaths: int) -> tuple[PlayedCall, ...]:
    play.model("writer", by=turns)
    played = play.run()
    assert sum("lost its worker" in line for line in played.trace) == deaths
    assert (played.status, played.output) == ("succeeded", "all read"), str(played)
    assert str(played.cost_usd) == "0.10"
    return played.calls


@pytest.mark.parametrize("after", range(CALLS + 1))
def test_an_agent_whose_worker_dies_after_any_call_makes_no_call_twice(after: int) -> None:
    play = play_of(agent)
    if after:
        play.dies("a", after=after)
    assert len(calls_of(play, deaths=min(after, 1))) == CALLS


@pytest.mark.parametrize("number", [1, 2])
def test_the_agents_of_the_page_answer(number: int) -> None:
    page = (ROOT / "docs/how-to/durable-handlers.md").read_text("utf-8")
    block = page.split("## Agent frameworks", 1)[1].split("```python")[number].split("```")[0]
    found: dict[str, Any] = {}
    exec(compile(block, "agents.py", "exec"), found)
    play = Play(PIPELINE | {"nodes": {"a": NODE | {"with": {"q": "{{ input.question }}"}}}})

    async def asked(given: dict[str, str], context: Context) -> str:
        return str(await found["answer"](given["q"], context))

    play.node("a", asked)
    play.model("writer", "At nine.")
    assert play.run({"question": "When?"}).output == "At nine."


@pytest.mark.parametrize("after", range(5))
def test_the_tools_of_the_page_are_called_once_though_a_worker_dies(after: int) -> None:
    page = (ROOT / "docs/how-to/durable-handlers.md").read_text("utf-8")
    block = page.split("## Tools", 1)[1].split("```python")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(compile(block, "tools.py", "exec"), found)
    looked_up: list[str] = []
    look_up = found["look_up"]
    found["look_up"] = lambda arguments: looked_up.append(arguments) or look_up(arguments)
    play = Play(PIPELINE | {"nodes": {"a": NODE | {"with": {"q": "{{ input.question }}"}}}})

    async def asked(given: dict[str, str], context: Context) -> str:
        return str(await found["answer"](given["q"], context))

    function = {"name": "look_up", "arguments": '{"word": "lamp"}'}
    call = {"id": "call-1", "type": "function", "function": function}
    play.node("a", asked)
    play.model("writer", Answer(tool_calls=[call]), "Within thirty days.")
    if after:
        play.dies("a", after=after)
    played = play.run({"question": "Can I return a lamp?"})
    assert played.output == "Within thirty days."
    assert looked_up == ['{"word": "lamp"}']
    first, last = (one.request for one in played.calls)
    assert first.tools == (found["LOOK_UP"],)
    told = [(message.role, message.content) for message in last.messages]
    assert told[2:] == [("tool", "A lamp can be returned within thirty days.")]
    assert (last.messages[1].tool_calls, last.messages[2].tool_call_id) == ((call,), "call-1")
