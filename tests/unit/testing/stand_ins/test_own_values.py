"""Each attempt, run and reader gets values of its own, as on the platform, where they are sent: what one
changes in them, no other sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.testing import Answer, Play
from hocket.worker import Context, Retryable

PYTHON: dict[str, Any] = {"type": "python", "handler": "m:f", "retry": {"max_attempts": 3}}


def play_of(function: Any, **fields: Any) -> Play:
    nodes = {"a": PYTHON | fields}
    play = Play(
        {"pipeline": "p", "slo_ms": 600_000, "nodes": nodes, "output": "{{ nodes.a.output }}"}
    )
    play.node("a", function)
    return play


async def a_step(context: Context) -> Any:
    return await context.step("made", lambda: [1])


async def a_signal(context: Context) -> Any:
    return await context.wait_for_signal("go")


async def a_call(context: Context) -> Any:
    return (await context.model("m", "Hi")).data


@pytest.mark.parametrize("get", [a_step, a_signal, a_call])
@pytest.mark.parametrize("sleeps", [False, True])
def test_what_a_handler_changes_in_a_journaled_value_is_not_in_the_journal(
    get: Any, sleeps: bool
) -> None:
    async def changes(_given: Any, context: Context) -> Any:
        got = await get(context)
        got.append(2)
        if sleeps:
            await context.sleep(60)
            await context.sleep(60)
        if context.step.attempt < 3:
            raise Retryable("again")
        return got

    play = play_of(changes)
    play.signals("go", [1])
    play.model("m", [1])
    played = play.run()
    assert played.output == [1, 2], str(played)
    assert play.run() == played


def test_another_delivery_of_an_attempt_gets_the_same_input() -> None:
    async def changes(given: dict[str, Any], context: Context) -> Any:
        given["more"].append(2)
        await context.step("one", str)
        return given

    play = play_of(changes, **{"with": {"more": [1]}})
    play.dies("a", after=1)
    played = play.run()
    assert played.output == {"more": [1, 2]}
    assert any("lost its worker" in line for line in played.trace)


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


async def changes_its_answer(_given: Any, context: Context) -> Any:
    reply = await context.model("m", "Hi", response_schema={"properties": {"a": {}}})
    reply.data["told"].append("changed")
    for call in reply.tool_calls:
        call["function"]["name"] = "changed"
    return reply.data


def test_what_a_handler_changes_in_an_answer_is_not_in_the_next() -> None:
    play = play_of(changes_its_answer)
    given = Answer(data={"told": []}, tool_calls=[CALL])
    play.model("m", given)
    for _ in range(2):
        played = play.run()
        assert played.output == {"told": ["changed"]}
        (call,) = played.calls
        assert call.reply.data == {"told": []}
        assert call.reply.tool_calls == (CALL,)
        assert CALL["function"] == {"name": "f", "arguments": "{}"}
        call.reply.data["told"].append("by the test")  # the next run does not see it
        call.reply.tool_calls[0]["function"]["name"] = "changed by the test"
    assert given == Answer(data={"told": []}, tool_calls=[CALL])


def test_what_a_handler_changes_in_a_recorded_answer_is_not_in_the_recording(
    tmp_path: Path,
) -> None:
    call = {"pipeline": "p", "step": "a", "model": "m", "answer": {"data": {"told": []}}}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"hocket_recording": 1, "run_id": "r", "calls": [call]}))
    play = play_of(changes_its_answer)
    play.recorded(file)
    for _ in range(2):
        assert play.run().output == {"told": ["changed"]}


def test_what_a_handler_asks_for_is_recorded_as_it_was_asked() -> None:
    async def changes(_given: Any, context: Context) -> None:
        schema = {"properties": {"a": {"type": "string"}}}
        await context.model("m", "Hi", response_schema=schema)
        schema["properties"]["a"]["type"] = "changed"

    play = play_of(changes)
    play.model("m", {"a": ""})
    (call,) = play.run().calls
    assert call.request.response_schema == {"properties": {"a": {"type": "string"}}}


def test_what_a_stand_in_returned_may_be_changed_by_its_reader() -> None:
    returned = {"list": [1]}
    nodes = {"a": PYTHON, "b": PYTHON | {"with": {"given": "{{ nodes.a.output }}"}}}
    play = Play({"pipeline": "p", "slo_ms": 60_000, "nodes": nodes})
    play.node("a", lambda: returned)
    play.node("b", lambda given: given["given"]["list"].append(2))
    for _ in range(2):
        assert play.run().steps["a"].output == {"list": [1]}
    assert returned == {"list": [1]}


def test_items_and_cached_outputs_are_each_readers_own() -> None:
    items = {"map": {"over": "input.items"}, "with": {"one": "{{ item }}"}}
    cached = {"cache": {"ttl_ms": 60_000}, "with": {"same": [1]}, "needs": ["a"]}
    reads = PYTHON | {"needs": ["c"], "with": {"one": "{{ nodes.c.output }}"}}
    play = Play(
        {
            "pipeline": "p",
            "slo_ms": 60_000,
            "nodes": {"a": PYTHON | items, "b": PYTHON | cached, "d": reads}
            | {"c": PYTHON | cached | {"needs": ["b"]}},
            "output": ["{{ nodes.a.output }}", "{{ nodes.b.output }}", "{{ nodes.c.output }}"],
        }
    )
    play.node("a", lambda given: given["one"].append(1) or given["one"])
    play.node("b", lambda given: given["same"].append(2) or given["same"])
    play.node("c", lambda given: given["same"].append(2) or given["same"])
    play.node("d", lambda given: given["one"].append(3))
    shared: list[Any] = []
    for _ in range(2):
        played = play.run({"items": [shared, shared]})
        assert played.output == [[[1], [1]], [1, 2], [1, 2]]
    assert shared == []


def test_what_a_test_changes_in_an_outcome_is_not_in_the_next() -> None:
    given = {"list": ["x" * 2_000]}
    nodes = {"a": {"type": "signal", "signal": "go"}}
    output = ["{{ input.list }}", "{{ nodes.a.output }}"]
    play = Play({"pipeline": "p", "slo_ms": 60_000, "nodes": nodes, "output": output})
    payload = ["y" * 2_000]
    play.signals("go", payload)
    for _ in range(2):
        played = play.run(given)
        assert played.output == [["x" * 2_000], ["y" * 2_000]]
        for one in played.output:
            one.append("changed")
    assert (given, payload) == ({"list": ["x" * 2_000]}, ["y" * 2_000])
