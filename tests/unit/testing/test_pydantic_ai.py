"""Agents of pydantic-ai: a worker that dies at any point costs neither a model's call nor a tool's
beyond those under way."""

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from hocket.testing import Answer, Play
from hocket.worker import Context
from hocket.worker.pydantic_ai import Durability, durable

NODE: dict[str, Any] = {"type": "python", "handler": "m:f", "retry": {"max_attempts": 2}}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}
QUESTION = "What do they weigh?"
done: list[str] = []
refused: list[str] = []
slow: list[str] = []


async def weigh(item: str) -> str:
    """Weigh an item."""
    if item in slow:
        slow.remove(item)
        await asyncio.sleep(5)
    done.append(item)
    if item in refused:
        refused.remove(item)
        raise ConnectionError("the scales are away")
    if item == "air":
        raise ModelRetry("It has no weight.")
    return f"{item} weighs {len(item)} kg"


def agent(instructions: str = "Tell.", **options: Any) -> Agent[None, str]:
    given: dict[str, Any] = {"name": "teller", "tools": [weigh], **options}
    return Agent("writer", instructions=instructions, capabilities=[Durability()], **given)


def calls(*items: str, tool: str = "weigh") -> Answer:
    return Answer(
        tool_calls=[
            {
                "id": f"call_{item}",
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps({"item": item})},
            }
            for item in items
        ]
    )


async def handler(_given: Any, context: Context) -> str:
    with durable(context):
        return (await agent().run(QUESTION)).output


async def streaming(_given: Any, context: Context) -> str:
    with durable(context):
        async with agent().run_stream(QUESTION) as streamed:
            return "".join([text async for text in streamed.stream_text(delta=True)])


def play(function: Any = handler) -> Play:
    done.clear()
    refused.clear()
    slow.clear()
    play = Play(PIPELINE)
    play.node("a", function)
    play.model("writer", calls("rope", "lamp"), calls("tent"), calls("air", "cup", "pan"), "18 kg.")
    return play


@pytest.mark.parametrize("function", [handler, streaming])
def test_an_agent_runs_in_a_handler_with_its_tools(function: Any) -> None:
    played = play(function).run()
    assert played.output == "18 kg.", str(played)
    assert sorted(done) == ["air", "cup", "lamp", "pan", "rope", "tent"]
    assert len(played.calls) == 4


@pytest.mark.parametrize("function", [handler, streaming])
@pytest.mark.parametrize("entries", range(1, 11))
def test_a_worker_that_dies_after_any_call_costs_no_other_one(entries: int, function: Any) -> None:
    dying = play(function)
    dying.dies("a", after=entries)
    played = dying.run()
    assert played.output == "18 kg.", str(played)
    assert any("lost its worker" in line for line in played.trace)
    assert sorted(done) == ["air", "cup", "lamp", "pan", "rope", "tent"]
    assert len(played.calls) == 4


@pytest.mark.parametrize("item", ["rope", "lamp", "tent", "cup"])
def test_a_tool_that_fails_is_called_once_more_and_nothing_else_is(item: str) -> None:
    failing = play()
    refused.append(item)
    played = failing.run()
    assert played.output == "18 kg.", str(played)
    assert sorted(done) == sorted(["air", "cup", "lamp", "pan", "rope", "tent", item])
    assert len(played.calls) == 4


@pytest.mark.parametrize("call_id", ["call_1__thought__" + "Ab/+" * 500, "call\u2028\n1", "a/b#c"])
def test_a_tool_is_called_under_whatever_id_a_models_server_gives(call_id: str) -> None:
    answer = calls("rope")
    answer.tool_calls[0]["id"] = call_id
    dying = Play(PIPELINE)
    dying.node("a", handler)
    dying.model("writer", answer, "4 kg.")
    done.clear()
    dying.dies("a", after=2)
    played = dying.run()
    assert (played.output, done) == ("4 kg.", ["rope"]), str(played)


@pytest.mark.parametrize("late", ["rope", "lamp"])
def test_tools_side_by_side_are_found_again_whichever_ends_first(late: str) -> None:
    dying = play()
    slow.append(late)
    dying.dies("a", after=2)  # the model's call, and the other tool's
    played = dying.run()
    assert played.output == "18 kg.", str(played)
    assert sorted(done) == ["air", "cup", "lamp", "pan", "rope", "tent"]
    asked = played.calls[1].request.openai
    assert asked is not None
    told = {one["tool_call_id"]: one["content"] for one in asked.body["messages"][-2:]}
    assert told == {"call_rope": "rope weighs 4 kg", "call_lamp": "lamp weighs 4 kg"}


def test_another_tool_under_the_id_of_one_before_says_so() -> None:
    async def measure(item: str) -> str:
        return f"{item} is {len(item)} cm long"

    deployed = [agent("Measure.", tools=[measure]), agent()]

    async def handler(_given: Any, context: Context) -> str:
        with durable(context):
            return (await deployed.pop().run(QUESTION)).output

    changed = Play(PIPELINE)
    changed.node("a", handler)
    changed.model("writer", calls("rope"), calls("rope", tool="measure"), "Four.")
    changed.dies("a", after=2)
    played = changed.run()
    assert played.error is not None
    assert played.error.code == "journal_mismatch", str(played)


def test_a_model_of_somebodys_own_is_asked_once_too() -> None:
    asked: list[int] = []

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        return ModelResponse(parts=[TextPart("Mine.")])

    own = Agent(FunctionModel(answer), name="own", capabilities=[Durability()])

    async def handler(_given: Any, context: Context) -> str:
        with durable(context):
            return (await own.run(QUESTION)).output

    dying = Play(PIPELINE)
    dying.node("a", handler)
    dying.dies("a", after=1)
    played = dying.run()
    assert played.output == "Mine.", str(played)
    assert asked == [1]


def test_an_agent_that_a_tool_runs_is_durable_as_well() -> None:
    async def helper(task: str) -> str:
        return (await agent().run(task)).output

    async def handler(_given: Any, context: Context) -> str:
        chief = agent("Delegate.", name="chief", tools=[helper])
        with durable(context):
            return (await chief.run(QUESTION)).output

    done.clear()
    dying = Play(PIPELINE)
    dying.node("a", handler)
    delegated = {"name": "helper", "arguments": '{"task": "Weigh a rope."}'}
    first = Answer(tool_calls=[{"id": "c", "type": "function", "function": delegated}])
    dying.model("writer", first, calls("rope"), "4 kg.", "It weighs 4 kg.")
    dying.dies("a", after=3)
    played = dying.run()
    assert played.output == "It weighs 4 kg.", str(played)
    assert done == ["rope"]
    assert len(played.calls) == 4


def test_a_run_has_the_same_ids_in_each_attempt() -> None:
    seen: set[tuple[str | None, str | None]] = set()

    async def handler(_given: Any, context: Context) -> str:
        with durable(context):
            result = await agent().run(QUESTION)
            seen.add((result.run_id, result.conversation_id))
        return str(await context.step("end", weigh, "end"))

    failing = play(handler)
    refused.append("end")
    played = failing.run()
    assert played.status == "succeeded", str(played)
    assert len(seen) == 1


async def test_an_agent_runs_outside_of_handlers_as_it_did() -> None:
    own = Agent(TestModel(call_tools=[]), name="own", tools=[weigh], capabilities=[Durability()])
    assert (await own.run(QUESTION)).output == "success (no tool calls)"


def test_calls_without_ids_are_found_again() -> None:
    """Some servers give none; a framework makes them up, by chance."""
    done.clear()
    dying = Play(PIPELINE)
    dying.node("a", handler)
    weighed = {"name": "weigh", "arguments": '{"item": "rope"}'}
    lit = {"name": "weigh", "arguments": '{"item": "lamp"}'}
    calls = [{"id": "", "type": "function", "function": one} for one in (weighed, lit)]
    dying.model("writer", Answer(tool_calls=calls), "8 kg.")
    dying.dies("a", after=3)
    played = dying.run()
    assert played.output == "8 kg.", str(played)
    assert sorted(done) == ["lamp", "rope"]
    assert len(played.calls) == 2
