"""Runs that cannot make their deadlines any more: given up, hurried, or left alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.coordinator.core.run.infeasible import LAST_MOMENT_SD
from hocket.coordinator.core.time.duration_estimates import Estimate, outlook
from hocket.schemas.errors import ErrorClass, ErrorInfo, InvalidInput
from hocket.schemas.messages import SignalReceived, TimerFired
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import START_MS, Play, python, request_of
from support.runs.infeasible import DEGRADE, FAIL, cancelled, draft, pass_to, takes
from support.runs.stored import assert_same, read_back

BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)


# ---- degrade -------------------------------------------------------------------------------------


def test_a_node_runs_as_it_is_while_there_is_time() -> None:
    play = Play(draft(), spec=DEGRADE)
    play.finish("a")
    assert play.waiting() == ["draft"]
    play.finish("draft", "long")
    play.finish("end", "done")
    assert play.run.status == "succeeded"


def test_the_fast_variant_serves_from_the_start_where_the_node_would_miss_the_deadline() -> None:
    play = Play(draft(), input={"q": 1}, spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("a", {"x": 1})
    assert play.waiting() == ["draft!0"]
    assert request_of(play.dispatched[0]).input == {"input": {"q": 1}, "a": {"x": 1}}
    play.finish("draft!0", "short")
    assert play.take("end").input["draft"] == "short"
    assert play.run.steps["draft"].degraded


def test_a_node_that_would_most_likely_be_given_up_on_the_way_is_not_begun() -> None:
    last_start_ms = 10_000 - (500 + 1_000 + LAST_MOMENT_SD * 100) - 4_000
    for after_ms, begun in ((-1, ["draft"]), (1, ["draft!0"])):
        play = Play(draft(), spec=DEGRADE)
        pass_to(play, last_start_ms + after_ms)
        play.finish("a")
        assert play.waiting() == begun


def test_a_node_that_takes_too_long_is_given_up_just_in_time_for_its_fast_variant() -> None:
    play = Play(draft(), spec=DEGRADE)
    play.finish("a")
    instead_ms = 500 + 1_000 + LAST_MOMENT_SD * 100
    pass_to(play, 10_000 - instead_ms - 1)
    assert play.waiting() == ["draft"]
    pass_to(play, 10_000 - instead_ms)
    assert cancelled(play) == [("draft", 1)]
    assert play.waiting() == ["draft!0"]
    play.finish("draft!0", "short")
    play.finish("end", "done")
    assert (play.run.status, play.run.output.value) == ("degraded", "done")
    assert play.run.finished_at_ms is not None
    assert play.run.finished_at_ms < play.run.deadline_at_ms


def test_the_end_of_a_node_that_was_given_up_changes_nothing_but_the_account() -> None:
    play = Play(draft(), spec=DEGRADE)
    play.finish("a")
    late = play.dispatched[0]
    pass_to(play, 9_000)
    play.dispatched.insert(0, late)
    play.finish("draft", "too late")
    assert play.run.steps["draft"].output.value is None
    assert play.waiting() == ["draft!0"]


def test_a_container_that_is_given_up_leaves_nothing_running() -> None:
    slow = {
        "type": "graph",
        "needs": ["a"],
        "expect": {"mean_ms": 4_000},
        "nodes": {"x": python(), "m": python(map={"over": "[1, 2, 3]"})},
        "fast": takes(500),
    }
    play = Play(draft() | {"draft": slow}, spec=DEGRADE)
    play.finish("a")
    assert play.waiting() == ["draft/m[0]", "draft/m[1]", "draft/m[2]", "draft/x"]
    play.finish("draft/m[1]")
    pass_to(play, 9_000)
    assert play.waiting() == ["draft!0"]
    assert sorted(cancelled(play)) == [("draft/m[0]", 1), ("draft/m[2]", 1), ("draft/x", 1)]
    play.finish("draft!0", 1)
    play.finish("end", 1)
    assert play.run.status == "degraded"
    assert not play.run.live()


def test_the_fast_variant_of_a_mapped_node_says_itself_what_it_runs_over() -> None:
    nodes = draft(
        map={"over": "input.xs"},
        fast=takes(500, map={"over": "input.xs[:1]"}, **{"with": {"x": "{{ item }}"}}),
    )
    play = Play(nodes, input={"xs": [1, 2, 3]}, spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("a")
    assert play.waiting() == ["draft!0[0]"]
    play.finish("draft!0[0]", "one")
    assert play.take("end").input["draft"] == ["one"]


def test_a_fast_variant_that_fails_leaves_the_node_to_its_fallbacks() -> None:
    play = Play(draft(fallback=[{"node": python()}]), spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("a")
    play.finish("draft!0", error=BROKEN)
    assert play.waiting() == ["draft!1"]
    play = Play(draft(), spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("a")
    play.finish("draft!0", error=BROKEN)
    assert (play.run.status, play.run.error) == ("failed", BROKEN)


def test_an_optional_node_is_left_out_and_what_needs_it_runs_without() -> None:
    nodes = {
        "a": takes(1_000),
        "extra": takes(8_000, needs=["a"], optional=True),
        "end": takes(1_000, needs=["extra"]),
    }
    play = Play(nodes, spec=DEGRADE)
    pass_to(play, 2_000)
    play.finish("a")
    assert play.waiting() == ["end"]
    assert request_of(play.dispatched[0]).input["extra"] is None
    assert play.run.steps["extra"].state == "skipped"
    error = play.run.steps["extra"].error
    assert error is not None
    assert error.code == "too_slow_for_deadline"
    play.finish("end", "done")
    assert (play.run.status, play.run.output.value) == ("degraded", "done")


def test_an_optional_node_that_takes_too_long_is_left_out_just_in_time() -> None:
    nodes = {
        "a": takes(1_000),
        "extra": takes(3_000, needs=["a"], optional=True),
        "end": takes(1_000, 100, needs=["extra"]),
    }
    play = Play(nodes, spec=DEGRADE)
    play.finish("a")
    pass_to(play, 10_000 - 1_000 - LAST_MOMENT_SD * 100 - 1)
    assert play.waiting() == ["extra"]
    pass_to(play, 10_000 - 1_000 - LAST_MOMENT_SD * 100)
    assert play.waiting() == ["end"]
    play.finish("end", "done")
    assert (play.run.status, play.run.output.value) == ("degraded", "done")


def test_a_run_that_gave_a_node_up_asks_to_be_woken_later_and_not_at_that_moment_again() -> None:
    """The log drops a second timer of one moment, and a run that waits for it is never woken again."""
    nodes = {"extra": takes(3_000, optional=True), "end": takes(1_000, 100, needs=["extra"])}
    play = Play(nodes, spec=DEGRADE)
    due_ms = min(play.wakes)
    play.wakes.clear()
    play.now_ms = due_ms
    play.send(TimerFired(run_id="r1", due_at_ms=due_ms))
    assert play.waiting() == ["end"]
    assert [wake for wake in play.wakes if wake > due_ms] == list(play.wakes) != []


def test_later_nodes_that_can_be_left_out_do_not_hurry_earlier_ones() -> None:
    """What a node must leave time for is the path at its shortest."""
    nodes = {
        "draft": takes(2_000, fast=takes(100)),
        "extra": takes(5_000, needs=["draft"], optional=True),
        "end": takes(1_000, needs=["extra"]),
    }
    play = Play(nodes, spec=DEGRADE)
    assert play.run.steps["draft"].give_up_at_ms == START_MS + 10_000 - 100 - 1_000


def test_where_nothing_is_known_a_node_has_half_the_time() -> None:
    play = Play({"draft": python(fast=python()), "end": python(needs=["draft"])}, spec=DEGRADE)
    at_ms = play.run.steps["draft"].give_up_at_ms
    assert at_ms is not None
    assert at_ms >= START_MS + 5_000


def test_emitted_nodes_are_hurried_too() -> None:
    planner = {
        "type": "planning",
        "model": "m",
        "with": {"question": "?"},
        "emit": {"types": ["python"], "handlers": ["m:f"], "max_steps": 5},
    }
    play = Play({"plan": planner, "end": takes(1_000, needs=["plan"])}, spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("plan", {"nodes": {"draft": takes(4_000, fast=takes(500))}})
    assert play.waiting() == ["plan/draft!0"]


# ---- fail ----------------------------------------------------------------------------------------


def test_a_run_ends_at_the_moment_in_which_it_becomes_infeasible() -> None:
    play = Play({"a": takes(1_000), "end": takes(3_000, needs=["a"])}, spec=FAIL)
    pass_to(play, 6_999)
    assert play.run.status == "running"
    pass_to(play, 7_000)
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "deadline_infeasible"
    assert cancelled(play) == [("a", 1)]


def test_a_run_that_is_infeasible_from_the_start_costs_nothing() -> None:
    play = Play({"a": takes(9_000), "end": takes(3_000, needs=["a"])}, spec=FAIL)
    assert play.run.status == "failed"
    assert play.seen == []


def test_what_nobody_measured_or_said_gives_no_run_up() -> None:
    slow = {"type": "llm", "model": "m", "prompt": "p"}
    play = Play({"a": slow, "b": slow | {"needs": ["a"]}}, spec=FAIL | {"slo_ms": 100})
    assert play.waiting() == ["a"]
    pass_to(play, 99)
    assert play.run.status == "running"


def test_what_may_be_skipped_gives_no_run_up() -> None:
    nodes = {
        "a": takes(100),
        "sometimes": takes(20_000, needs=["a"], when="input.x"),
        "after it": takes(20_000, needs=["sometimes"]),
    }
    nodes["then"] = nodes.pop("after it")
    play = Play(nodes, input={"x": False}, spec=FAIL)
    play.finish("a")
    assert play.run.status == "succeeded"


def test_measurements_count_and_not_only_what_the_spec_expects() -> None:
    plan = compile_pipeline({"pipeline": "p", "nodes": {"a": python()}} | FAIL)
    found = outlook(plan, {"a": Estimate(700.0, 0.0, 10.0)})["a"]
    assert found.own.sure_ms == 700.0
    found = outlook(plan, {"a": Estimate(700.0, 0.0, 2.0)})["a"]
    assert found.own.sure_ms == 0.0


def test_a_probe_that_may_degrade_begins_its_nodes_and_gives_them_up_in_time() -> None:
    play = Play(draft(), spec=DEGRADE, probe=True)
    pass_to(play, 6_000)
    play.finish("a")
    assert play.waiting() == ["draft"]
    pass_to(play, 9_000)
    assert play.waiting() == ["draft!0"]


def test_a_probe_is_not_given_up() -> None:
    play = Play({"a": takes(9_000), "end": takes(3_000, needs=["a"])}, spec=FAIL, probe=True)
    assert play.waiting() == ["a"]
    pass_to(play, 9_999)
    assert play.run.status == "running"


def test_while_a_person_is_waited_for_nothing_is_given_up_and_then_by_the_new_deadline() -> None:
    nodes = {
        "ok": {"type": "approval"},
        "draft": takes(4_000, fast=takes(500)),
        "end": takes(1_000, needs=["draft", "ok"]),
    }
    play = Play(nodes, spec=DEGRADE)
    pass_to(play, 9_500)
    assert play.waiting() == ["draft"]
    play.send(SignalReceived(run_id="r1", signal_id="s", name="ok", payload={"approved": True}))
    assert play.run.deadline_at_ms == START_MS + 19_500
    pass_to(play, 19_500 - 1_500)
    assert play.waiting() == ["draft!0"]


def test_a_backoff_that_ends_with_a_give_up_while_a_person_is_waited_for_is_over() -> None:
    """Nobody listened for a while: both moments have passed when the first timer comes."""
    retried = {"retry": {"max_attempts": 2, "backoff_ms": 50}}
    nodes = {
        "draft": {**takes(4_000, fast=takes(500)), **retried},
        "ask": python(),
        "ok": {"type": "approval", "needs": ["ask"]},
        "end": takes(1_000, needs=["draft", "ok"]),
    }
    play = Play(nodes, spec=DEGRADE)
    play.finish("ask")
    play.finish("draft", error=BROKEN.model_copy(update={"error_class": ErrorClass.TRANSIENT}))
    step = play.run.steps["draft"]
    assert (step.state, play.run.paused_at_ms) == ("backoff", START_MS)
    assert step.give_up_at_ms is not None
    play.now_ms = START_MS + 9_900
    play.send(TimerFired(run_id="r1", due_at_ms=step.give_up_at_ms))
    assert play.waiting() == ["draft"]
    assert play.take("draft").attempt == 2


# ---- what may not be written ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "node", "field"),
    [
        ({}, python(fast=python()), "nodes.a.fast"),
        ({"on_infeasible": "fail"}, python(fast=python()), "nodes.a.fast"),
        (DEGRADE, {"type": "approval", "fast": python()}, "nodes.a.fast"),
        (DEGRADE, python(fast={"type": "approval"}), "nodes.a.fast.type"),
        (DEGRADE, python(fast=python(fast=python())), "nodes.a.fast.fast"),
        (DEGRADE, python(fast=python(needs=["b"])), "nodes.a.fast.needs"),
        (DEGRADE, python(fast=python(optional=True)), "nodes.a.fast.optional"),
        (DEGRADE, python(map={"over": "[1]"}, fast=python()), "nodes.a.fast.with"),
        (DEGRADE, python(fast=python(**{"with": {"x": "{{ nodes.c.output }}"}})), "nodes.a.fast.with.x"),
        (DEGRADE, python(fast=python(**{"with": {"x": "{{ nodes.a.output }}"}})), "nodes.a.fast.with.x"),
    ],
)  # fmt: skip
def test_a_fast_variant_that_makes_no_sense_is_refused(
    spec: dict[str, Any], node: dict[str, Any], field: str
) -> None:
    nodes = {"a": node, "b": python()}
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline({"pipeline": "p", "nodes": nodes} | spec)
    assert refused.value.fields["field"] == field


def test_a_node_read_by_a_fast_variant_only_is_needed() -> None:
    nodes = {"a": python(fast=python(**{"with": {"x": "{{ nodes.b.output }}"}})), "b": python()}
    play = Play(nodes, spec=DEGRADE)
    assert play.waiting() == ["b"]


# ---- takeovers -----------------------------------------------------------------------------------

HURRIED = {
    "a": takes(500),
    "g": {
        "type": "graph",
        "needs": ["a"],
        "with": {"q": 1},
        "nodes": {"x": takes(2_000, fast=takes(100)), "y": takes(500, needs=["x"], optional=True)},
        "output": "{{ nodes.x.output }}",
        "fast": takes(300, map={"over": "[1, 2]"}, **{"with": {"i": "{{ item }}"}}),
    },
    "m": takes(
        1_000,
        needs=["a"],
        map={"over": "[1, 2, 3]", "concurrency": 2},
        optional=True,
        retry={"max_attempts": 2, "on": ["broken"]},
    ),
    "end": takes(1_000, needs=["g", "m"], fast=takes(10), fallback=[{"node": python()}]),
}


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["degrade", "fail"]), st.sampled_from([4_000, 8_000]))
def test_a_hurried_run_is_restored_at_every_moment_and_ends(
    data: st.DataObject, policy: str, slo_ms: int
) -> None:
    nodes = HURRIED if policy == "degrade" else without_fast(HURRIED)
    play = Play(nodes, spec={"slo_ms": slo_ms, "on_infeasible": policy})
    assert_same(read_back(play), play.run)
    for _ in range(80):
        if play.run.has_ended:
            break
        if play.dispatched and data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(play.dispatched) - 1))
            fails = data.draw(st.integers(0, 9)) == 0
            key = play.dispatched[place].step
            play.finish(key, None if fails else 1, BROKEN if fails else None)
        else:
            pass_to(play, play.now_ms - START_MS + data.draw(st.integers(1, 900)))
        if not play.run.has_ended:
            found = read_back(play)
            assert_same(found, play.run)
    pass_to(play, slo_ms)
    assert play.run.has_ended
    assert play.run.live() == []
    assert play.waiting() == []
    ended = [step for step in play.run.steps.values() if step.state == "dispatched"]
    assert ended == []


def without_fast(nodes: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, node in nodes.items():
        plain = {key: value for key, value in node.items() if key != "fast"}
        found[name] = plain | ({"nodes": without_fast(node["nodes"])} if "nodes" in node else {})
    return found


def test_a_node_that_is_given_up_with_what_it_stands_in_is_not_given_a_fast_variant_of_its_own() -> (
    None
):
    inner = {"x": takes(4_000, fast=takes(500))}
    play = Play(
        {
            "g": {"type": "graph", "nodes": inner, "fast": takes(500)},
            "end": takes(100, needs=["g"]),
        },
        spec=DEGRADE,
    )
    play.take("g/x")
    pass_to(play, 9_900)
    assert play.waiting() == ["g!0"]
    assert play.run.steps["g/x"].state == "cancelled"
    play.finish("g!0", 1)
    play.finish("end", 1)
    assert play.run.status == "degraded"
    assert {step.state for step in play.run.steps.values()} == {
        "cancelled",
        "succeeded",
    }


def test_an_infeasible_run_fails_at_once_where_the_pipeline_says_so() -> None:
    slow = {"mean_ms": 5_000}
    play = Play(
        {"a": python(), "b": python(needs=["a"], expect=slow)},
        spec={"slo_ms": 6_000, "on_infeasible": "fail"},
    )
    play.now_ms += 2_000
    play.finish("a")
    assert play.run.error is not None
    assert play.run.error.code == "deadline_infeasible"


def test_an_infeasible_run_leaves_optional_nodes_out_where_the_pipeline_says_so() -> None:
    nodes = {
        "a": python(),
        "extra": python(needs=["a"], optional=True, expect={"mean_ms": 5_000}),
        "b": python(needs=["a"]),
    }
    play = Play(nodes, spec={"slo_ms": 6_000, "on_infeasible": "degrade"})
    play.now_ms += 2_000
    play.finish("a")
    assert play.waiting() == ["b"]
    play.finish("b", 1)
    assert play.run.status == "degraded"
