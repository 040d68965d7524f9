"""What a test names must be there: a fault that hits nothing would make it pass for no reason."""

from typing import Any

import pytest

from hocket.testing import NoAttempts, NotPlayable, Play, UnknownSignal, UnknownStep
from hocket.worker import Context, Worker

PYTHON = {"type": "python", "handler": "nowhere:f"}
LLM = {"type": "llm", "model": "m", "prompt": "Hi"}
APPROVAL = {"type": "approval", "prompt": "Send it?"}
SIGNAL = {"type": "signal", "signal": "paid"}
MAP = {"over": "[1, 2]"}
LOOP = {"until": "output", "max_rounds": 2}
GRAPH: dict[str, Any] = {"type": "graph", "nodes": {"ok": APPROVAL, "b": PYTHON}}
RACE = {"type": "race", "branches": {"one": APPROVAL, "two": PYTHON}}
BELOW = {"pipeline": "below", "nodes": {"deep": PYTHON}}

worker = Worker()


@worker.node("crm.greet")
async def greet(_given: Any, context: Context) -> Any:
    """Call another node."""
    return await context.call_node("lookup", {})


def play_of(**nodes: Any) -> Play:
    plans = ({"pipeline": "p", "nodes": nodes}, BELOW)
    return Play(plans[0], worker=worker, pipelines=plans[1:])


@pytest.mark.parametrize(
    ("node", "step", "cure"),
    [
        (GRAPH, "a", "Name a step inside it, such as `a/b`."),
        (GRAPH | {"map": MAP}, "a[1]", "Name a step inside it, such as `a/b`."),
        (GRAPH | {"loop": LOOP}, "a#2", "Name a step inside it, such as `a/b`."),
        (GRAPH | {"nodes": {"ok": APPROVAL}}, "a", "Name a step inside it."),
        (RACE, "a", "Name a step inside it, such as `a~two`."),
        (RACE, "a~one", 'Answer it: `play.approves("a~one")`'),
        (APPROVAL, "a", 'Answer it: `play.approves("a")` or `play.refuses("a")`.'),
        (APPROVAL | {"map": MAP}, "a[0]", 'Answer it: `play.approves("a")`'),
        (SIGNAL, "a", 'Send its signal: `play.signals("paid", ...)`.'),
        (PYTHON | {"fallback": [{"node": APPROVAL}]}, "a!1", "Answer it"),
        ({"type": "pipeline", "pipeline": "below"}, "a", "Name a step of the pipeline `below`"),
        (PYTHON | {"calls": {"ask": APPROVAL}}, "a/ask-1", "Answer it"),
    ],
)
def test_a_fault_of_a_step_that_no_worker_gets_is_refused(node: Any, step: str, cure: str) -> None:
    play = play_of(a=node)
    for fault in (play.fails, play.hangs, play.dies, lambda one: play.takes(one, 10)):
        with pytest.raises(NoAttempts) as refused:
            fault(step)
        assert f"`{step}` has no attempts" in str(refused.value)
        assert cure in str(refused.value)
    with pytest.raises(NoAttempts):
        play.node(step, lambda: 1)


@pytest.mark.parametrize(
    ("node", "step", "failed"),
    [
        (PYTHON | {"map": MAP}, "a", "a[0]"),
        (PYTHON | {"map": MAP}, "a[1]", "a[1]"),
        (PYTHON | {"loop": LOOP}, "a", "a#1"),
        (PYTHON | {"loop": LOOP}, "a#1", "a#1"),
        (PYTHON | {"map": MAP, "loop": LOOP}, "a[1]#1", "a[1]#1"),
        (GRAPH | {"map": MAP}, "a/b", "a[0]/b"),
        (GRAPH | {"map": MAP}, "a[1]/b", "a[1]/b"),
        (
            GRAPH | {"map": MAP, "nodes": {"b": PYTHON | {"loop": LOOP}}},
            "a[1]/b#2",
            "a[1]/b#2",
        ),
        (
            GRAPH
            | {"map": MAP, "fallback": [{"node": PYTHON | {"with": {}}}], "output": "{{ 1 / 0 }}"},
            "a!1",
            "a!1",
        ),
        (RACE, "a~two", "a~two"),
        (GRAPH | {"fallback": [{"node": PYTHON}], "output": "{{ 1 / 0 }}"}, "a!1", "a!1"),
        ({"type": "crm.greet", "calls": {"lookup": PYTHON}}, "a/lookup", "a/lookup-1"),
        ({"type": "crm.greet", "calls": {"lookup": PYTHON}}, "a/lookup-1", "a/lookup-1"),
        (
            {"type": "crm.greet", "calls": {"lookup": GRAPH}},
            "a/lookup-1/b",
            "a/lookup-1/b",
        ),
    ],
)
def test_a_fault_hits_the_step_that_it_names(node: Any, step: str, failed: str) -> None:
    play = play_of(a=node)
    for _ in range(4):
        play.approves("ok")
    play.node("python", lambda: False)
    play.fails(step, error_class="invalid", code="told_so", attempt=None)
    played = play.run({})
    error = played.steps[failed].error
    assert error is not None, str(played)
    assert error.code == "told_so"


CALLER: dict[str, Any] = {"type": "crm.greet", "calls": {"lookup": PYTHON}, "max_calls": 2}


@pytest.mark.parametrize(
    ("node", "step", "known"),
    [
        (PYTHON, "a[0]", "a"),
        (PYTHON, "a#1", "a"),
        (PYTHON | {"map": MAP}, "a#1", "a (a[0] ... a[999])"),
        (PYTHON | {"map": MAP | {"max_items": 2}}, "a[2]", "a (a[0] ... a[1])"),
        (PYTHON | {"map": MAP}, "a[01]", "a (a[0] ... a[999])"),
        (PYTHON | {"map": MAP}, "a[0][0]", "a (a[0] ... a[999])"),
        (PYTHON | {"map": MAP}, "a[99999999999999999999]", "a (a[0] ... a[999])"),
        (PYTHON | {"loop": LOOP}, "a[0]", "a (a#1 ... a#2)"),
        (PYTHON | {"loop": LOOP}, "a#0", "a (a#1 ... a#2)"),
        (PYTHON | {"loop": LOOP}, "a#3", "a (a#1 ... a#2)"),
        (PYTHON | {"map": MAP, "loop": LOOP}, "a[0]", "a (a[0]#1 ... a[999]#2)"),
        (PYTHON | {"map": MAP, "loop": LOOP}, "a#1[0]", "a (a[0]#1 ... a[999]#2)"),
        (GRAPH, "a[0]/b", "a/ok, a/b, a,"),
        (GRAPH | {"map": MAP}, "a#1/b", "a/b (a[0]/b ... a[999]/b)"),
        (GRAPH | {"nodes": {"b": PYTHON | {"loop": LOOP}}}, "a/b#3", "a/b (a/b#1 ... a/b#2)"),
        (GRAPH | {"map": MAP, "nodes": {"b": PYTHON | {"loop": LOOP}}}, "a/b#1", "a[0]/b#1 ..."),
        (GRAPH | {"map": MAP, "nodes": {"b": PYTHON | {"loop": LOOP}}}, "a[0]/b", "a[0]/b#1 ..."),
        (RACE | {"map": MAP}, "a~two[0]", "a~two (a[0]~two ... a[999]~two)"),
        (PYTHON | {"map": MAP, "fallback": [{"node": PYTHON | {"with": {}}}]}, "a[0]!1", "a!1"),
        (PYTHON | {"fallback": [{"node": PYTHON}]}, "a!1[0]", "a!1, a,"),
        (PYTHON | {"fallback": [{"node": PYTHON}]}, "a!2", "a!1, a,"),
        (CALLER, "a/lookup-0", "a/lookup (a/lookup-1 ... a/lookup-2)"),
        (CALLER, "a/lookup-3", "a/lookup (a/lookup-1 ... a/lookup-2)"),
        (CALLER | {"map": MAP}, "a/lookup-1", "a/lookup (a[0]/lookup-1 ... a[999]/lookup-2)"),
    ],
)
def test_a_fault_of_a_step_that_cannot_be_is_refused(node: Any, step: str, known: str) -> None:
    play = play_of(a=node)
    for name in (play.fails, play.hangs, play.dies, lambda one: play.takes(one, 10)):
        with pytest.raises(UnknownStep) as refused:
            name(step)
        assert known in str(refused.value).partition("Known names: ")[2]
    with pytest.raises(UnknownStep):
        play.node(step, lambda: 1)


@pytest.mark.parametrize(
    ("node", "step", "path"),
    [
        (PYTHON | {"map": MAP}, "a[0]", "a"),
        (GRAPH | {"map": MAP}, "a[0]/b", "a/b"),
        (CALLER, "a/lookup-1", "a/lookup"),
        (
            {
                "type": "planning",
                "model": "m",
                "prompt": "Hi",
                "emit": {"types": ["llm"], "models": ["m"]},
            },
            "a/x[0]",
            "a/x",
        ),
    ],
)
def test_a_stand_in_runs_all_steps_of_a_node(node: Any, step: str, path: str) -> None:
    play = play_of(a=node)
    with pytest.raises(NotPlayable, match=f"Name the node by its path: `{path}`"):
        play.node(step, lambda: 1)
    play.node(path, lambda: 1)


def test_a_fault_of_a_called_pipeline_hits_the_step_in_it() -> None:
    play = play_of(a={"type": "pipeline", "pipeline": "below"})
    play.fails("deep", error_class="invalid", code="told_so")
    played = play.run({})
    assert played.status == "failed"
    assert any("told_so" in line for line in played.trace)


def test_what_a_planner_or_an_agent_starts_is_unknown_until_it_does() -> None:
    tool = {"parameters": {"type": "object"}, "node": APPROVAL}
    agent = {"type": "agent", "model": "m", "prompt": "Hi", "tools": {"ask": tool}}
    planner = {"type": "planning", "model": "m", "prompt": "Hi"}
    planner["emit"] = {"types": ["llm"], "models": ["m"]}
    play = play_of(agent=agent, planner=planner, b=GRAPH)
    play.fails("agent")
    play.fails("agent#8/ask_1")
    play.fails("agent/ask_1")
    play.fails("planner/whatever[2]")
    play.approves("ask_1")
    for step in (
        "agents/ask_1",
        "agent[",
        "agent#9/ask_1",
        "agent[0]",
        "planner#1/x",
        "b/whatever",
        "b-1",
        "planning/x",
    ):
        with pytest.raises(UnknownStep):
            play.fails(step)


@pytest.mark.parametrize("name", ["okk", "b", "a/okk", "ok#1x", "paid2", "s[0]"])
def test_a_signal_that_nothing_waits_for_is_refused(name: str) -> None:
    nodes = {"a": GRAPH | {"nodes": {"ok": APPROVAL | {"map": MAP}}}, "b": LLM, "s": SIGNAL}
    play = Play({"pipeline": "p", "nodes": nodes})
    for send in (play.approves, play.refuses, play.signals):
        with pytest.raises(UnknownSignal, match="Known names: a/ok, ok, paid, s") as refused:
            send(name)
        assert f"`{name}`" in str(refused.value)


@pytest.mark.parametrize("name", ["ok", "a/ok", "a/ok[0]", "paid", "s"])
def test_what_something_waits_for_can_be_sent(name: str) -> None:
    nodes = {"a": GRAPH | {"nodes": {"ok": APPROVAL | {"map": MAP}}}, "s": SIGNAL}
    play = Play({"pipeline": "p", "nodes": nodes})
    play.signals(name, {"approved": True})
    assert any("answered by test" in line for line in play.run({}).trace)


@pytest.mark.parametrize("node", [PYTHON, {"type": "crm.greet"}])
def test_a_handler_may_wait_for_any_signal(node: Any) -> None:
    play_of(a=node).signals("whatever")
