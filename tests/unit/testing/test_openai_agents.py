"""Agents of OpenAI's Agents SDK: a worker that dies at any point costs neither a model's call nor a
tool's beyond those under way."""

import json
from datetime import date
from typing import Any

import pytest
from agents import (
    Agent,
    ItemHelpers,
    RunConfig,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    handoff,
)
from agents.models.chatcmpl_converter import Converter
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from hocket.testing import Answer, Play
from hocket.worker import Context
from hocket.worker.openai_agents import run

NODE: dict[str, Any] = {"type": "python", "handler": "m:f"}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}
done: list[str] = []


@function_tool
def weigh(item: str) -> str:
    """Weigh an item."""
    done.append(item)
    return f"{item} weighs {len(item)} kg"


def calls(*items: str) -> Answer:
    return Answer(
        tool_calls=[
            {
                "id": f"call_{item}",
                "type": "function",
                "function": {"name": "weigh", "arguments": json.dumps({"item": item})},
            }
            for item in items
        ]
    )


async def handler(_given: Any, context: Context) -> str:
    teller = Agent(name="Teller", instructions="Tell.", model="writer", tools=[weigh])
    return str((await run(teller, "What do they weigh?", context)).final_output)


def play() -> Play:
    done.clear()
    play = Play(PIPELINE)
    play.node("a", handler)
    play.model("writer", calls("rope", "lamp"), calls("tent"), "All in all 12 kg.")
    return play


def test_an_agent_runs_in_a_handler_with_its_tools() -> None:
    played = play().run()
    assert played.output == "All in all 12 kg.", str(played)
    assert sorted(done) == ["lamp", "rope", "tent"]
    assert len(played.calls) == 3


@pytest.mark.parametrize("call_id", ["call_1__thought__" + "Ab/+" * 500, "call\u2028\n1", "a/b#c"])
def test_a_tool_is_called_under_whatever_id_a_models_server_gives(call_id: str) -> None:
    answer = calls("rope")
    answer.tool_calls[0]["id"] = call_id
    dying = Play(PIPELINE)
    dying.node("a", handler)
    dying.model("writer", answer, "All in all 4 kg.")
    done.clear()
    dying.dies("a", after=2)
    played = dying.run()
    assert (played.output, done) == ("All in all 4 kg.", ["rope"]), str(played)
    asked = played.calls[1].request.openai
    assert asked is not None
    assert asked.body["messages"][-1]["tool_call_id"] == call_id


@pytest.mark.parametrize("entries", range(1, 7))
def test_a_worker_that_dies_calls_no_model_and_no_tool_again_that_the_journal_has(
    entries: int,
) -> None:
    dying = play()
    dying.dies("a", after=entries)
    played = dying.run()
    assert played.output == "All in all 12 kg.", str(played)
    assert any("lost its worker" in line for line in played.trace)
    assert len(played.calls) + len(done) <= 6 + 1


def test_the_platform_makes_all_calls_of_agents_that_are_tools_or_handed_over_to() -> None:
    async def nested(_given: Any, context: Context) -> str:
        scales = Agent(name="Scales", model="weigher", tools=[weigh])
        closer = Agent(name="Closer", model="closer")
        tool = scales.as_tool("ask_scales", "Ask what it weighs.")
        teller = Agent(name="Teller", model="writer", tools=[tool], handoffs=[handoff(closer)])
        return str((await run(teller, "What does it weigh?", context)).final_output)

    def call(name: str, **arguments: str) -> Answer:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return Answer(tool_calls=[{"id": name, "type": "function", "function": function}])

    done.clear()
    play = Play(PIPELINE)
    play.node("a", nested)
    asks = call("ask_scales", input="rope")
    play.model("writer", asks, call("transfer_to_closer"))
    play.model("weigher", call("weigh", item="rope"), "4 kg")
    play.model("closer", "It weighs 4 kg.")
    played = play.run()
    assert played.output == "It weighs 4 kg.", str(played)
    assert done == ["rope"]
    assert [one.request.model for one in played.calls] == [
        "writer", "weigher", "weigher", "writer", "closer",
    ]  # fmt: skip


@pytest.mark.parametrize("entries", range(1, 6))
@pytest.mark.parametrize("by", [lambda agent: agent, handoff], ids=["agent", "handoff"])
def test_agents_that_hand_over_to_each_other_call_no_tool_again(by: Any, entries: int) -> None:
    async def handing(_given: Any, context: Context) -> str:
        teller = Agent(name="Teller", model="writer")
        closer = Agent(name="Closer", model="closer", tools=[weigh], handoffs=[by(teller)])
        teller.handoffs = [by(closer)]
        return str((await run(teller, "What does it weigh?", context)).final_output)

    def hands_to(name: str) -> Answer:
        function = {"name": f"transfer_to_{name}", "arguments": "{}"}
        return Answer(tool_calls=[{"id": name, "type": "function", "function": function}])

    done.clear()
    dying = Play(PIPELINE)
    dying.node("a", handing)
    dying.model("writer", hands_to("closer"), "It weighs 4 kg.")
    dying.model("closer", calls("rope"), hands_to("teller"))
    dying.dies("a", after=entries)
    played = dying.run()
    assert (played.output, done) == ("It weighs 4 kg.", ["rope"]), str(played)
    assert len(played.calls) == 4


class Weight:
    """What only its own class can show."""

    def __str__(self) -> str:
        return "four kg"


class Note(BaseModel):
    day: date


DAY = date(2026, 1, 2)
IMAGE = ToolOutputImage(image_url="data:image/png;base64,AA==")
TEXT = ToolOutputText(text="four kg")


@pytest.mark.parametrize(
    "result",
    [
        Weight(), DAY, {"day": DAY}, Note(day=DAY), (1, 2), {"kg": 4}, [1, None], 4.5, float("nan"),
        b"\xff", TEXT, [TEXT, IMAGE], [TEXT, {"type": "text", "text": "more"}],
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
@pytest.mark.parametrize("dies", [False, True])
def test_the_model_is_shown_a_tools_result_as_the_sdk_shows_it(result: Any, dies: bool) -> None:
    @function_tool(name_override="weigh")
    def weighed(item: str) -> Any:
        done.append(item)
        return result

    async def told(_given: Any, context: Context) -> str:
        teller = Agent(name="Teller", model="writer", tools=[weighed])
        return str((await run(teller, "What does it weigh?", context)).final_output)

    done.clear()
    play = Play(PIPELINE)
    play.node("a", told)
    play.model("writer", calls("rope"), "All in all 4 kg.")
    if dies:
        play.dies("a", after=2)
    played = play.run()
    assert (played.output, done) == ("All in all 4 kg.", ["rope"]), str(played)
    asked = played.calls[1].request.openai
    assert asked is not None
    call: Any = ResponseFunctionToolCall(
        name="weigh", arguments="", call_id="c", type="function_call"
    )
    shown = Converter.items_to_messages([ItemHelpers.tool_call_output_item(call, result)])
    assert asked.body["messages"][-1]["content"] == shown[-1]["content"]


@pytest.mark.parametrize("kind", [RunConfig, dict])
def test_a_configuration_of_a_run_may_name_its_model(kind: Any) -> None:
    async def configured(_given: Any, context: Context) -> str:
        config = kind(model="writer", tracing_disabled=True)
        result = await run(Agent(name="Teller"), "Hello", context, run_config=config)
        return str(result.final_output)

    play = Play(PIPELINE)
    play.node("a", configured)
    play.model("writer", "Good day.")
    assert play.run().output == "Good day."


def test_an_agent_without_a_model_is_told_to_name_one() -> None:
    async def nameless(_given: Any, context: Context) -> str:
        return str((await run(Agent(name="Teller"), "Hello", context)).final_output)

    play = Play(PIPELINE)
    play.node("a", nameless)
    error = play.run().error
    assert error is not None
    assert "an agent has none" in error.message, error
