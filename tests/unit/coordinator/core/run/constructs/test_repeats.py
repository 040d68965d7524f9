"""Runs that repeat another: what is taken over, what runs again."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.commands import LookUpCache, StartSubRun
from hocket.coordinator.core.run.constructs import reuse
from hocket.schemas.checks.plain_json import same_json
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.ids import child_run_id, input_digest
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    RunOrigin,
    RunParent,
    SignalReceived,
    Spend,
    StepRequested,
    TimerFired,
)
from hocket.schemas.pipeline.spec import PythonNode
from hocket.schemas.repeats import with_edit
from support.run_player import Play, python
from support.runs.stored import assert_same

BROKEN = ErrorInfo(code="broken", message="broken")
LATE = ErrorInfo(code="late", message="late", error_class=ErrorClass.TIMEOUT)


class Broken(Exception):
    def info(self) -> ErrorInfo:
        return BROKEN


def needing(*names: str, **fields: Any) -> dict[str, Any]:
    """A node that reads the outputs of others."""
    return python(**{"with": {n: f"{{{{ nodes.{n}.output }}}}" for n in names}} | fields)


def fails_at(*keys: str) -> Any:
    """A worker that returns its handler and input, and fails at these steps."""

    def work(request: StepRequested) -> Any:
        if request.step in keys:
            raise Broken
        return {"by": request.config["handler"], "input": request.input}

    return work


def played(nodes: dict[str, Any], *failing: str, **fields: Any) -> Play:
    play = Play(nodes, **fields)
    play.work(fails_at(*failing))
    assert play.run.has_ended
    return play


CHAIN = {
    "a": python(**{"with": {"q": "{{ input.q }}"}}),
    "b": needing("a"),
    "c": needing("b"),
    "side": python(**{"with": {"s": 1}}),
    "end": needing("c", "side"),
}


def test_a_retry_runs_the_failed_step_and_what_comes_after_it_only() -> None:
    first = played(CHAIN, "c", input={"q": 1})
    assert first.run.status == "failed"
    again = first.repeat()
    assert again.waiting() == ["c"]
    whole = played(CHAIN, input={"q": 1})
    assert again.work(fails_at()).output.value == whole.run.output.value
    assert again.seen == ["c", "end"]
    assert again.run.status == "succeeded"


def test_what_is_taken_over_says_from_where_and_costs_nothing() -> None:
    first = Play({"a": python(), "b": needing("a")})
    first.finish("a", 1, spend=Spend(cost_usd=Decimal(3)))
    first.finish("b", error=BROKEN)
    again = first.repeat()
    step = again.run.steps["a"]
    assert (step.state, step.output.value, step.attempt) == ("succeeded", 1, 0)
    assert step.source is not None
    assert (step.source.kind, step.source.run_id, step.source.step) == ("run", "r1", "a")
    assert again.run.spent_usd == 0
    again.finish("b", error=BROKEN)
    third = again.repeat()
    source = third.run.steps["a"].source
    assert source is not None
    assert source.run_id == "r1", "the run that computed it, not the one in between"


def test_a_run_from_a_chosen_step_runs_it_and_all_that_comes_after_it() -> None:
    nodes = CHAIN | {"order": python(needs=["b"])}
    first = played(nodes, input={"q": 1})
    again = first.repeat("rerun", from_step="b")
    again.work(fails_at())
    assert sorted(again.seen) == ["b", "c", "end", "order"]
    assert again.run.status == "succeeded"


def test_a_chosen_step_takes_an_edited_input() -> None:
    first = played(CHAIN, input={"q": 1})
    again = first.repeat("rerun", from_step="b", step_input={"a": "edited"})
    assert again.take("b").input == {"a": "edited"}


def test_a_retry_keeps_what_succeeded_with_an_edited_input() -> None:
    first = played(CHAIN, input={"q": 1})
    edit = {"from_step": "b", "step_input": {"a": "edited"}}
    edited = first.repeat("rerun", **edit)
    edited.work(fails_at("c"))
    for _ in range(2):  # the same holds for the retry of a retry
        assert edited.asked is not None
        asked = with_edit(RunOrigin(run_id=edited.run_id, operation="retry"), edited.asked)
        assert (asked.from_step, asked.step_input) == ("b", {"a": "edited"})
        edited = edited.repeat("retry", **edit)
        assert edited.run.steps["b"].input.value == {"a": "edited"}
        edited.work(fails_at("c"))
        assert edited.seen == ["c"]


def test_a_rerun_has_only_the_edit_that_it_names() -> None:
    before = RunOrigin(run_id="r1", operation="rerun", from_step="b", step_input={"a": 1})
    for asked in (
        RunOrigin(run_id="r2", operation="rerun", from_step="c"),
        RunOrigin(run_id="r2", operation="rerun"),
    ):
        assert with_edit(asked, before) == asked
    retry = RunOrigin(run_id="r2", operation="retry")
    assert with_edit(retry, None) == retry
    from_b = RunOrigin(run_id="r1", operation="rerun", from_step="b")
    assert with_edit(retry, from_b) == retry


def test_an_edited_input_runs_again_only_what_reads_it() -> None:
    nodes = {
        "x": python(**{"with": {"v": "{{ input.x }}"}}),
        "y": python(**{"with": {"v": "{{ input.y }}"}}),
        "z": needing("x", "y"),
    }
    first = played(nodes, input={"x": 1, "y": 2})
    again = first.repeat("rerun", input={"x": 1, "y": 3})
    again.work(fails_at())
    assert again.seen == ["y", "z"]


def test_another_version_runs_again_what_its_nodes_do_differently() -> None:
    first = played(CHAIN, input={"q": 1})
    nodes = CHAIN | {"c": needing("b", handler="m:better"), "more": needing("a")}
    again = first.repeat("rerun", nodes=nodes)
    again.work(fails_at())
    assert sorted(again.seen) == ["c", "end", "more"]


def test_another_version_runs_again_a_node_in_which_true_became_1() -> None:
    def nodes(value: Any) -> dict[str, Any]:
        schema = {"const": value}
        asked = {"type": "llm", "model": "m", "prompt": "p", "response_schema": schema}
        return {"a": asked, "b": needing("a")}

    first = Play(nodes(1))
    first.finish("a", "said")
    first.finish("b", error=BROKEN)
    assert first.repeat("rerun", nodes=nodes(1)).waiting() == ["b"]
    assert first.repeat("rerun", nodes=nodes(True)).waiting() == ["a"]


def test_a_policy_that_changes_nothing_of_the_output_keeps_it() -> None:
    first = played({"a": python(), "b": needing("a")}, "b")
    nodes = {"a": python(retry={"max_attempts": 2}, timeout_ms=5, optional=True), "b": needing("a")}
    assert first.repeat(nodes=nodes).waiting() == ["b"]


def test_a_map_of_many_runs_its_bad_item_again_only() -> None:
    nodes = {
        "m": python(map={"over": "input.xs", "concurrency": 7}, **{"with": {"x": "{{ item }}"}})
    }
    first = Play(nodes, input={"xs": list(range(100))})
    for index in [*range(40), *range(41, 100)]:
        if f"m[{index}]" in first.waiting():
            first.finish(f"m[{index}]", index)
    first.finish("m[40]", error=BROKEN)
    done = {k for k, s in first.run.steps.items() if s.state == "succeeded"}
    again = first.repeat()
    again.work(lambda request: request.input["x"])
    assert again.run.output.value == list(range(100))
    assert set(again.seen).isdisjoint(done)
    assert "m[40]" in again.seen
    assert len(done) >= 90


def test_a_map_that_skipped_an_item_tries_it_again() -> None:
    spec = {"over": "input.xs", "on_item_error": "skip"}
    nodes = {"m": python(map=spec, **{"with": {"x": "{{ item }}"}})}
    first = played(nodes, "m[2]", input={"xs": [1, 2, 3, 4]})
    assert first.run.status == "degraded"
    again = first.repeat()
    again.work(fails_at())
    assert again.seen == ["m[2]"]
    assert again.run.status == "succeeded"


def test_a_loop_goes_on_in_the_round_that_failed() -> None:
    nodes = {
        "l": python(
            loop={"until": "round >= 4"}, **{"with": {"r": "{{ round }}", "p": "{{ previous }}"}}
        )
    }
    first = played(nodes, "l#3")
    again = first.repeat()
    again.work(fails_at())
    assert again.seen == ["l#3", "l#4"]
    assert again.run.status == "succeeded"


def test_a_run_from_a_round_runs_the_later_rounds_too() -> None:
    nodes = {"l": python(loop={"until": "round >= 4"}, **{"with": {"r": "{{ round }}"}})}
    first = played(nodes)
    again = first.repeat("rerun", from_step="l#2")
    again.work(fails_at())
    assert again.seen == ["l#2", "l#3", "l#4"]


def test_a_run_from_an_item_runs_that_item_and_what_needs_the_map() -> None:
    nodes = {
        "m": python(map={"over": "input.xs"}, **{"with": {"x": "{{ item }}"}}),
        "z": needing("m"),
        "other": python(),
    }
    first = played(nodes, input={"xs": [1, 2, 3]})
    again = first.repeat("rerun", from_step="m[1]")
    again.work(fails_at())
    assert again.seen == ["m[1]", "z"]


def test_a_run_from_a_step_inside_a_graph_keeps_what_is_beside_it() -> None:
    inner = {"x": python(), "y": needing("x"), "free": python()}
    nodes = {"g": {"type": "graph", "nodes": inner}, "z": needing("g"), "pre": python()}
    first = played(nodes)
    again = first.repeat("rerun", from_step="g/x")
    again.work(fails_at())
    assert again.seen == ["g/x", "g/y", "z"]
    whole = first.repeat("rerun", from_step="g")
    whole.work(fails_at())
    assert sorted(whole.seen) == ["g/free", "g/x", "g/y", "z"]


RACE = {
    "r": {
        "type": "race",
        "branches": {"slow": python(handler="m:slow"), "fast": python()},
        "with": {"q": 1},
    },
    "z": needing("r"),
}


def test_a_race_that_was_won_is_not_run_again_and_pays_no_loser() -> None:
    first = Play(RACE)
    first.finish("r~fast", "won")
    first.finish("z", error=BROKEN)
    again = first.repeat()
    assert again.seen == ["z"]
    assert again.run.steps["r"].output.value == "won"
    assert again.run.steps["r~slow"].state == "cancelled"


def test_the_best_of_a_race_stays_the_best_though_a_branch_had_failed() -> None:
    race = {
        "type": "race",
        "branches": {"a": python(), "b": python(handler="m:b"), "c": python(handler="m:c")},
        "pick": "best",
        "score": "output",
    }
    first = Play({"r": race, "z": needing("r")})
    first.finish("r~a", 1)
    first.finish("r~b", error=BROKEN)
    first.finish("r~c", 3)
    first.finish("z", error=BROKEN)
    again = first.repeat()
    assert again.seen == ["z"]
    assert again.run.steps["r"].output.value == 3


def test_a_run_from_a_branch_holds_the_whole_race_again() -> None:
    first = Play(RACE)
    first.finish("r~fast", "won")
    first.finish("z", 1)
    again = first.repeat("rerun", from_step="r~fast")
    assert again.waiting() == ["r~fast", "r~slow"]


def test_a_fallback_that_served_serves_again_and_the_run_stays_degraded() -> None:
    nodes = {"a": python(fallback=[{"node": python(handler="m:other")}]), "b": needing("a")}
    first = Play(nodes)
    first.finish("a", error=LATE)
    first.finish("a!1", "instead")
    first.finish("b", error=BROKEN)
    again = first.repeat()
    assert again.seen == ["b"]
    assert again.take("b").input == {"a": "instead"}
    assert again.run.steps["a"].degraded


@pytest.mark.parametrize(
    ("node", "failed"),
    [
        ({"type": "graph", "nodes": {"x": python(), "y": python()}}, ["g/x"]),
        (python(map={"over": "[1, 2, 3]"}), ["g[1]"]),
        (python(loop={"until": "round == 3"}), ["g#2"]),
        ({"type": "race", "branches": {"x": python(), "y": python()}}, ["g~x", "g~y"]),
        (python(), ["g", "g!1"]),
    ],
)  # fmt: skip
def test_the_fallback_of_a_container_serves_again(node: dict[str, Any], failed: list[str]) -> None:
    on = ["broken", "race_lost"]
    instead = [{"on": on, "node": python(**{"with": {"i": i}})} for i in range(2)]
    nodes = {"g": node | {"fallback": instead}, "c": needing("g")}
    again = played(nodes, *failed, "c").repeat()
    assert again.waiting() == ["c"]
    again.work(fails_at())
    assert (again.seen[-1:], again.run.status) == (["c"], "degraded")


@pytest.mark.parametrize(
    ("node", "inside"),
    [
        ({"type": "graph", "nodes": {"x": python(), "y": python(needs=["x"])}}, "g/y"),
        ({"type": "race", "branches": {"x": python(), "y": python()}, "valid": "output == 7"}, "g~y"),
        (
            {"type": "graph", "nodes": {"x": python()}, "map": {"over": "[1, 2]"}},
            "g[1]/x",
        ),
    ],
)  # fmt: skip
def test_what_took_too_long_and_was_replaced_does_not_run_again(
    node: dict[str, Any], inside: str
) -> None:
    instead = [{"node": python(**{"with": {"i": 1}})}]
    first = Play({"g": node | {"timeout_ms": 100, "fallback": instead}, "c": needing("g")})
    for step in first.waiting()[:1]:
        first.finish(step, 1)
    assert inside in first.waiting()
    first.fire()
    first.finish("g!1", "instead")
    first.finish("c", error=BROKEN)
    again = first.repeat()
    assert again.waiting() == ["c"]
    assert (again.run.steps["g"].output.value, again.run.steps["g"].degraded) == ("instead", True)
    assert inside in first.repeat("rerun", from_step=inside).waiting()


def test_a_run_from_a_step_beside_the_failed_one_tries_their_container_again() -> None:
    graph = {"type": "graph", "nodes": {"x": python(), "y": python()}}
    first = Play({"g": graph | {"fallback": [{"node": python(**{"with": {"i": 1}})}]}})
    first.finish("g/y", 1)
    first.finish("g/x", error=BROKEN)
    first.finish("g!1", "instead")
    again = first.repeat("rerun", from_step="g/y")
    assert again.waiting() == ["g/x", "g/y"]


def test_a_retry_of_a_degraded_run_tries_what_degraded_it() -> None:
    nodes = {
        "a": python(fallback=[{"node": python(handler="m:other")}]),
        "o": python(optional=True),
        "good": python(),
    }
    first = Play(nodes)
    first.finish("a", error=LATE)
    first.finish("a!1", "instead")
    first.finish("o", error=BROKEN)
    first.finish("good", 1)
    assert first.run.status == "degraded"
    again = first.repeat()
    again.work(fails_at())
    assert sorted(again.seen) == ["a", "o"]
    assert again.run.status == "succeeded"


EMITTED = {"nodes": {"i": python(), "j": python(needs=["i"]), "k": python()}}
PLANNED = {
    "p": {"type": "planning", "model": "m", "prompt": "?"}
    | {"emit": {"types": ["python"], "handlers": ["m:f"]}},
    "z": needing("p"),
}


def test_the_steps_that_a_planner_emitted_are_kept_and_the_failed_one_runs() -> None:
    first = Play(PLANNED)
    first.finish("p", EMITTED)
    first.finish("p/i", 1)
    first.finish("p/k", 2)
    first.finish("p/j", error=BROKEN)
    again = first.repeat()
    assert again.waiting() == ["p/j"]
    again.work(fails_at())
    assert again.seen == ["p/j", "z"]
    assert again.run.status == "succeeded"


def test_a_run_from_an_emitted_step_keeps_the_plan_and_a_run_from_the_planner_does_not() -> None:
    first = Play(PLANNED)
    first.finish("p", EMITTED)
    first.work(fails_at())
    again = first.repeat("rerun", from_step="p/i")
    assert again.waiting() == ["p/i"]
    again.work(fails_at())
    assert sorted(again.seen) == ["p/i", "p/j", "z"]
    assert first.repeat("rerun", from_step="p").waiting() == ["p"]


def test_an_approval_that_was_given_for_the_same_input_stands() -> None:
    nodes = {"a": python(), "ok": {"type": "approval", "needs": ["a"]}, "z": python(needs=["ok"])}
    first = Play(nodes)
    first.finish("a", 1)
    first.send(SignalReceived(run_id="r1", signal_id="s", name="ok", payload={"approved": True}))
    first.finish("z", error=BROKEN)
    again = first.repeat()
    assert again.waiting() == ["z"]
    changed = first.repeat("rerun", from_step="a")
    changed.finish("a", 2)
    assert changed.run.steps["ok"].state == "waiting"


def test_a_sub_run_that_failed_takes_over_from_its_own_origin() -> None:
    nodes = {"c": {"type": "pipeline", "pipeline": "child"}}
    first = Play(nodes)
    first.send(AttemptFinished(run_id="r1", step="c", attempt=1, error=BROKEN))
    (child,) = first.repeat().subruns()
    assert child.accepted.origin is not None
    assert child.accepted.origin.run_id == child_run_id("r1", "c", 1)
    assert child.accepted.run_id == child_run_id("r1+", "c", 1)
    assert child.accepted.origin.operation == "retry"
    (child,) = first.repeat("rerun").subruns()
    assert child.accepted.origin is not None
    assert child.accepted.origin.operation == "rerun", "takes the version of new runs"
    (fresh,) = first.repeat("rerun", from_step="c").subruns()
    assert fresh.accepted.origin is None


def test_a_sub_run_whose_origin_has_no_end_takes_nothing_over_then_or_later() -> None:
    """Else its next owner, who finds the end, would decide otherwise than the one before."""
    parent = RunParent(run_id="p", step="a", attempt=1, partition=0)
    asked = RunOrigin(run_id="r0", operation="retry")
    play = Play({"a": python()}, parent=parent, asked=asked)
    assert play.run.origin is None
    assert play.waiting() == ["a"]


def test_a_sub_run_that_succeeded_is_kept_whole() -> None:
    nodes = {"c": {"type": "pipeline", "pipeline": "child"}, "z": needing("c")}
    first = Play(nodes)
    first.send(AttemptFinished(run_id="r1", step="c", attempt=1, output={"n": 1}))
    first.finish("z", error=BROKEN)
    again = first.repeat()
    assert [c for c in again.commands if isinstance(c, StartSubRun)] == []
    assert again.take("z").input == {"c": {"n": 1}}


def test_a_step_that_succeeded_at_its_second_attempt_is_kept() -> None:
    nodes = {"a": python(retry={"max_attempts": 2, "backoff_ms": 1}), "b": needing("a")}
    first = Play(nodes)
    first.finish("a", error=LATE)
    first.now_ms += 10
    first.send(TimerFired(run_id="r1", due_at_ms=first.now_ms))
    first.finish("a", "second")
    first.finish("b", error=BROKEN)
    again = first.repeat()
    assert again.seen == ["b"]
    assert again.take("b").input == {"a": "second"}


def test_a_degraded_sub_run_is_kept_unless_the_retry_is_for_it() -> None:
    nodes = {"c": {"type": "pipeline", "pipeline": "child"}, "z": needing("c")}
    first = Play(nodes)
    half = AttemptFinished(run_id="r1", step="c", attempt=1, output=1, degraded=True)
    first.send(half)
    first.finish("z", error=BROKEN)
    again = first.repeat()
    assert again.subruns() == []
    again.finish("z", 2)
    assert again.run.status == "degraded"
    (child,) = again.repeat().subruns()
    assert child.accepted.origin is None, "the kept step started no sub-run of its own"
    whole = Play(nodes)
    whole.send(half)
    whole.finish("z", 2)
    (child,) = whole.repeat().subruns()
    assert child.accepted.origin is not None


def test_a_step_that_runs_in_any_case_is_not_served_by_the_cache_but_fills_it() -> None:
    nodes = {"a": python(cache={"ttl_ms": 9}), "b": needing("a", cache={"ttl_ms": 9})}
    first = Play(nodes)
    for key in "ab":
        ask = [c for c in first.commands if isinstance(c, LookUpCache)][-1]
        first.send(CacheAnswered(run_id="r1", step=key, key=ask.key, hit=False))
        first.finish(key, key)
    again = first.repeat("rerun", from_step="a")
    assert again.waiting() == ["a"]
    again.finish("a", "new")
    assert again.waiting() == ["b"]
    fills = [c for c in again.commands if type(c).__name__ == "FillCache"]
    assert [fill.output for fill in fills] == ["new"]


def test_what_was_taken_over_is_forgotten_with_the_end() -> None:
    again = played(CHAIN, "c", input={"q": 1}).repeat()
    again.work(fails_at())
    assert again.run.reuse is None


def test_a_repeated_run_is_read_back_with_what_it_repeats() -> None:
    again = played(CHAIN, input={"q": 1}).repeat("rerun", from_step="b", step_input={"a": [1]})
    found = again.read_back()
    assert found.origin == again.asked
    assert_same(found, again.run)


def test_a_graph_of_many_steps_is_taken_over_in_one_decision_with_one_row_each() -> None:
    nodes = {f"n{i}": python(needs=[f"n{i - 1}"] if i else []) for i in range(300)}
    nodes["last"] = python(needs=["n299"])
    first = Play(nodes)
    first.work(
        lambda request: request.step if request.step != "last" else fails_at("last")(request)
    )
    again = first.repeat()
    assert again.waiting() == ["last"]
    assert Counter(step.key for step in again.outcomes[0].changed)["n7"] == 1


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], [1], False),
        ([], {}, False),
        ("1", 1, False),
        (None, None, True),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, equal: bool) -> None:
    assert same_json(one, other) is equal


def test_what_a_node_says_is_written_out_once_for_all_steps_that_are_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mapped = {"over": "input.parts", "concurrency": 20}
    node = python(calls={"look": python()}, map=mapped, **{"with": {"x": "{{ item }}"}})
    play = played({"m": node}, input={"parts": list(range(20))})
    written: list[object] = []
    before = PythonNode.model_dump

    def model_dump(self: PythonNode, **named: Any) -> dict[str, Any]:
        written.append(self)
        return before(self, **named)

    monkeypatch.setattr(PythonNode, "model_dump", model_dump)
    again = play.repeat()
    assert (again.run.status, again.waiting()) == ("succeeded", [])
    assert len(written) < 10


def test_large_inputs_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[Any] = []

    def digest(value: Any) -> str:
        digested.append(value)
        return input_digest(value)

    monkeypatch.setattr(reuse, "input_digest", digest)
    nodes = {f"n{number}": needing("a") for number in range(20)}
    play = Play({"a": python(), **nodes, "end": needing(*nodes)})
    play.work(lambda step: {"rows": [{"b": 1e20}] * 1_000} if step.step == "a" else _end(step))
    again = play.repeat()
    assert again.waiting() == ["end"]
    assert len(digested) <= 2
    assert {step.state for key, step in again.run.steps.items() if key != "end"} == {"succeeded"}


def _end(step: StepRequested) -> int:
    if step.step == "end":
        raise Broken
    return 1
