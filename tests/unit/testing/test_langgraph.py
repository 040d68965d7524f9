"""Graphs of LangGraph: a worker that dies at any point costs no model's call beyond those under way."""

import itertools
from collections.abc import AsyncIterator, Callable
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, RetryPolicy, Send, interrupt

from hocket.testing import Play
from hocket.worker import Context, Retryable
from hocket.worker.langgraph import Checkpoints, run

NODE: dict[str, Any] = {"type": "python", "handler": "m:f"}
PIPELINE: dict[str, Any] = {"pipeline": "p", "slo_ms": 60_000, "nodes": {"a": NODE}}
CALLS = 10
"""A plan, three parts side by side, two in a graph that is a node, two rounds of critique and repair."""
done: list[str] = []


class Report(TypedDict, total=False):
    parts: Annotated[list[str], add]
    messages: Annotated[list[AnyMessage], add_messages]
    rounds: int


class Words(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


def report_graph(context: Context, raises_at: int = 0) -> Any:
    async def ask(question: str) -> str:
        done.append(question)
        number = len(done)
        answer = (await context.model("writer", question)).text
        if number == raises_at:
            raise Retryable("busy")
        return answer

    async def plan(_state: Report) -> Command[Any]:
        await ask("plan")
        return Command(goto=[Send("part", {"title": title}) for title in ("x", "y", "z")])

    async def part(one: dict[str, str]) -> Report:
        return {"parts": [await ask(f"part {one['title']}")]}

    async def check(_state: Words) -> Words:
        return {"messages": [AIMessage(await ask("check"))]}

    async def title(state: Words) -> Words:
        assert isinstance(state["messages"][-1], AIMessage), state
        return {"messages": [AIMessage(await ask("title"))]}

    async def critic(state: Report) -> Report:
        rounds = state.get("rounds", 0) + 1
        return {"parts": [await ask("critic")], "rounds": rounds}

    async def repair(_state: Report) -> Report:
        return {"parts": [await ask("repair")]}

    inner = StateGraph(Words)
    inner.add_node("check", check)
    inner.add_node("title", title)
    inner.add_edge(START, "check")
    inner.add_edge("check", "title")
    graph = StateGraph(Report)
    graph.add_node("plan", plan)
    graph.add_node("part", part)
    graph.add_node("finish", inner.compile())
    graph.add_node("critic", critic)
    graph.add_node("repair", repair)
    graph.add_edge(START, "plan")
    graph.add_edge("part", "finish")
    graph.add_edge("finish", "critic")
    graph.add_edge("critic", "repair")
    graph.add_conditional_edges(
        "repair", lambda state: "critic" if state["rounds"] < 2 else END, ["critic", END]
    )
    return graph.compile()


def told(state: Report) -> dict[str, Any]:
    kept = [part for part in state["parts"] if part.startswith("part")]
    return {"parts": sorted(kept), "texts": [str(one.content) for one in state["messages"]]}


async def report(_given: Any, context: Context, raises_at: int = 0) -> dict[str, Any]:
    state = await run(report_graph(context, raises_at), {"parts": []}, context)
    return told(state)


REPORT = {"parts": ["part x!", "part y!", "part z!"], "texts": ["check!", "title!"]}


def play(handler: Any, **fields: Any) -> Play:
    done.clear()
    play = Play({**PIPELINE, "nodes": {"a": NODE | fields}})
    play.node("a", handler)
    play.model("writer", by=lambda call: f"{call.messages[-1].content}!")
    return play


def test_a_graph_runs_in_a_handler_with_its_parallel_nodes_and_graphs_in_it() -> None:
    played = play(report).run()
    assert played.output == REPORT, str(played)
    assert len(played.calls) == len(done) == CALLS


@pytest.mark.parametrize("entries", range(2 * CALLS))
def test_a_worker_that_dies_in_a_graph_costs_at_most_the_nodes_under_way(entries: int) -> None:
    dying = play(report)
    dying.dies("a", after=entries)
    played = dying.run()
    assert any("lost its worker" in line for line in played.trace)
    assert played.output == REPORT, str(played)
    assert len(played.calls) <= CALLS + 1, done
    assert len(done) <= CALLS + 1, done


@pytest.mark.parametrize("call", range(1, CALLS + 1))
@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_an_attempt_that_fails_in_a_graph_costs_no_model_call(
    has_checkpoints: bool, call: int
) -> None:
    async def fails_once(given: Any, context: Context) -> dict[str, Any]:
        handler = checkpointed if has_checkpoints else report
        return await handler(given, context, raises_at=call)

    played = play(fails_once, retry={"max_attempts": 2}).run()
    assert played.output == REPORT, str(played)
    assert any("attempt 2" in line for line in played.trace)
    assert len(played.calls) == CALLS
    assert len(done) <= CALLS + 3, (
        "a node was done again, beside those side by side with the one that failed"
    )


class Asked(TypedDict, total=False):
    names: Annotated[list[str], add]


async def asking(
    _given: Any, context: Context, saver: Callable[[Context], Any] = Checkpoints
) -> dict[str, Any]:
    async def draft(_state: Asked) -> Asked:
        return {"names": [(await context.model("writer", "draft")).text]}

    async def confirm(_state: Asked) -> Asked:
        return {"names": [interrupt("first?"), interrupt("second?")]}

    async def send(_state: Asked) -> Asked:
        return {"names": [(await context.model("writer", "send")).text]}

    graph = StateGraph(Asked)
    graph.add_sequence([draft, confirm, send])
    graph.add_edge(START, "draft")
    compiled = graph.compile(checkpointer=saver(context))
    config = {"configurable": {"thread_id": "1"}}
    state = await run(compiled, {"names": []}, context, config)
    questions = []
    while asked := state.get("__interrupt__"):
        questions.append(asked[0].value)
        answer = await context.wait_for_signal("answer")
        state = await run(compiled, Command(resume=answer), context, config)
    return {"questions": questions, "names": state["names"]}


async def asking_in_memory(given: Any, context: Context) -> dict[str, Any]:
    return await asking(given, context, lambda _: InMemorySaver())


def asked(handler: Any) -> Play:
    asked = play(handler)
    asked.signals("answer", "Ann", after_ms=1_000)
    asked.signals("answer", "Bob", after_ms=9_000)
    return asked


ANSWERED = {"questions": ["first?", "second?"], "names": ["draft!", "Ann", "Bob", "send!"]}


@pytest.mark.parametrize("handler", [asking, asking_in_memory])
def test_a_graph_that_asks_people_is_suspended_and_goes_on_where_it_was(handler: Any) -> None:
    played = asked(handler).run()
    assert played.output == ANSWERED, str(played)
    assert len(played.calls) == 2


@pytest.mark.parametrize(
    ("attempt", "entries"),
    [(attempt, n) for attempt, count in ((1, 9), (2, 4), (3, 10)) for n in range(count)],
)
def test_a_worker_that_dies_beside_checkpoints_goes_on_from_the_last_one(
    attempt: int, entries: int
) -> None:
    dying = asked(asking)
    dying.dies("a", after=entries, attempt=attempt)
    played = dying.run()
    assert any("lost its worker" in line for line in played.trace)
    assert played.output == ANSWERED, str(played)
    assert len(played.calls) <= 2 + 1


async def checkpointed(_given: Any, context: Context, raises_at: int = 0) -> dict[str, Any]:
    graph = report_graph(context, raises_at)
    graph.checkpointer = Checkpoints(context)
    state = await run(graph, {"parts": []}, context, {"configurable": {"thread_id": "1"}})
    return told(state)


@pytest.mark.parametrize("entries", range(47))
def test_a_worker_that_dies_in_a_graph_with_checkpoints_costs_at_most_what_is_under_way(
    entries: int,
) -> None:
    dying = play(checkpointed)
    dying.dies("a", after=entries)
    played = dying.run()
    assert any("lost its worker" in line for line in played.trace)
    assert played.output == REPORT, str(played)
    assert len(played.calls) <= CALLS + 1, done
    assert len(done) <= CALLS + 1, done


async def talking(_given: Any, context: Context) -> list[str]:
    async def reply(state: Asked) -> Asked:
        done.append(state["names"][-1])
        return {"names": [(await context.model("writer", state["names"][-1])).text]}

    graph = StateGraph(Asked)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    saver = Checkpoints(context)
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    for word in ("one", "two", "three"):
        state = await run(compiled, {"names": [word]}, context, config)
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"]["names"] == state["names"]
    return list(state["names"])


@pytest.mark.parametrize("entries", range(24))
def test_several_runs_on_one_thread_go_on_from_one_another(entries: int) -> None:
    dying = play(talking)
    dying.dies("a", after=entries)
    played = dying.run()
    assert any("lost its worker" in line for line in played.trace)
    assert played.output == ["one", "one!", "two", "two!", "three", "three!"], str(played)
    assert len(played.calls) <= 3 + 1
    assert len(done) <= 3 + 1


async def conforming(_given: Any, context: Context) -> dict[str, Any]:
    numbers = itertools.count()

    @checkpointer_test(name="Checkpoints")
    async def checkpoints() -> AsyncIterator[Checkpoints]:
        with context.branch(f"saver {next(numbers)}"):
            saver = Checkpoints(context)
        yield saver

    report = await validate(checkpoints)
    return dict(report.to_dict())


def test_checkpoints_are_as_the_conformance_suite_of_langgraph_wants_them() -> None:
    played = play(conforming).run()
    assert played.output, str(played)
    assert played.output["conformance_level"] == "FULL", played.output
    results = played.output["results"]
    passed = {name for name, result in results.items() if result["tests_passed"]}
    assert passed >= {"put", "put_writes", "get_tuple", "list", "delete_thread"}
    assert not any(result["failures"] for result in results.values())


async def failing(_given: Any, context: Context) -> list[str]:
    async def shaky(_state: Asked) -> Asked:
        done.append("shaky")
        if done.count("shaky") == 1:
            raise ConnectionError("gone")
        return {"names": ["at last"]}

    async def last(_state: Asked) -> Asked:
        return {"names": [(await context.model("writer", "last")).text]}

    graph = StateGraph(Asked)
    graph.add_node("shaky", shaky, retry_policy=RetryPolicy(initial_interval=0.01))
    graph.add_node("last", last)
    graph.add_edge(START, "shaky")
    graph.add_edge("shaky", "last")
    names: list[str] = (await run(graph.compile(), {"names": []}, context))["names"]
    return names


def test_what_a_graph_tried_again_itself_is_not_tried_by_another_attempt() -> None:
    dying = play(failing)
    dying.dies("a", after=3)
    played = dying.run()
    assert any("lost its worker" in line for line in played.trace)
    assert played.output == ["at last", "last!"], str(played)
    assert done == ["shaky", "shaky"]


async def waiting(_given: Any, context: Context) -> list[str]:
    async def wait(_state: Asked) -> Asked:
        return {"names": [await context.wait_for_signal("answer")]}

    graph = StateGraph(Asked)
    graph.add_node("wait", wait, metadata={"journal": False})
    graph.add_edge(START, "wait")
    names: list[str] = (await run(graph.compile(), {"names": []}, context))["names"]
    return names


def test_a_node_that_is_no_step_waits_for_a_signal_itself() -> None:
    waits = play(waiting)
    waits.signals("answer", "Ann", after_ms=9_000)
    played = waits.run()
    assert played.output == ["Ann"], str(played)
