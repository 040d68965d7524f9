"""Scopes: order, skipping, failing, outputs."""

from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished
from support.run_player import Play, python

BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)


def diamond() -> dict:
    return {
        "plan": python(),
        "left": python(needs=["plan"]),
        "right": python(needs=["plan"]),
        "join": python(needs=["left", "right"]),
    }


def test_no_step_runs_before_its_parents() -> None:
    play = Play(diamond())
    assert play.waiting() == ["plan"]
    play.finish("plan", 1)
    assert play.waiting() == ["left", "right"]
    play.finish("left", 2)
    assert play.waiting() == ["right"]
    play.finish("right", 3)
    assert play.waiting() == ["join"]
    play.finish("join", 4)
    assert (play.run.status, play.run.output.value) == ("succeeded", 4)
    assert len(play.ends()) == 1


def test_a_step_without_with_gets_the_run_input_and_its_needs() -> None:
    play = Play(diamond(), input={"q": "x"})
    play.finish("plan", {"a": 1})
    assert play.take("left").input == {"input": {"q": "x"}, "plan": {"a": 1}}


def test_a_node_read_by_a_template_is_needed() -> None:
    play = Play(
        {"b": python(**{"with": {"v": "{{ nodes.a.output.v }}"}}), "a": python()},
    )
    assert play.waiting() == ["a"]
    play.finish("a", {"v": [1, 2]})
    assert play.take("b").input == {"v": [1, 2]}


def test_a_false_when_skips_the_node_and_what_needs_only_it() -> None:
    play = Play(
        {
            "a": python(when="input.go"),
            "b": python(needs=["a"]),
            "c": python(needs=["b", "d"]),
            "d": python(),
        },
        input={"go": False},
    )
    assert play.waiting() == ["d"]
    play.finish("d", 1)
    assert play.take("c").input == {"input": {"go": False}, "b": None, "d": 1}
    assert play.run.steps["b"].state == "skipped"


def test_a_failed_node_ends_the_run_and_cancels_its_siblings() -> None:
    play = Play(diamond())
    play.finish("plan")
    play.finish("left", error=BROKEN)
    assert (play.run.status, play.run.error) == ("failed", BROKEN)
    assert play.run.steps["right"].state == "cancelled"
    assert play.waiting() == []
    assert not play.run.live()


def test_an_optional_node_that_fails_leaves_the_run_degraded() -> None:
    play = Play({"a": python(optional=True), "b": python(needs=["a"])})
    play.finish("a", error=BROKEN)
    assert play.take("b").input["a"] is None
    play = Play({"a": python(optional=True), "b": python(needs=["a"])})
    play.finish("a", error=BROKEN)
    play.finish("b", 1)
    assert play.run.status == "degraded"


def test_a_template_that_fails_fails_its_step_with_the_field_named() -> None:
    play = Play({"a": python(), "b": python(**{"with": {"v": "{{ nodes.a.output.missing }}"}})})
    play.finish("a", {})
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "expression_failed"
    assert "missing" in play.run.error.message


def test_a_result_that_comes_twice_changes_nothing() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.finish("a", 1)
    before = play.run
    decision = play.send(play.log[-1][1])
    assert decision.run.steps == before.steps
    assert [type(c).__name__ for c in decision.commands] == ["RecordAttempt"]


def test_a_result_that_comes_before_its_parents_is_held_and_used() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.send(AttemptFinished(run_id="r1", step="b", attempt=1, output="held"))
    assert play.run.status == "running"
    play.finish("a", 1)
    assert play.seen == ["a"]
    assert (play.run.status, play.run.output.value) == ("succeeded", "held")


def test_the_output_of_several_last_nodes_is_named() -> None:
    play = Play({"a": python(), "b": python()})
    play.finish("a", 1)
    play.finish("b", 2)
    assert play.run.output.value == {"a": 1, "b": 2}


def test_a_graph_node_has_a_scope_of_its_own() -> None:
    play = Play(
        {
            "outer": {
                "type": "graph",
                "with": {"q": "{{ input.q }}"},
                "nodes": {"x": python(), "y": python(needs=["x"])},
                "output": {"got": "{{ nodes.y.output }}"},
            }
        },
        input={"q": 7},
    )
    assert play.take("outer/x").input == {"input": {"q": 7}}
    play = Play(play.nodes, input={"q": 7})
    play.finish("outer/x", 1)
    play.finish("outer/y", 2)
    assert play.run.output.value == {"got": 2}


def test_a_circle_of_sub_pipelines_ends_at_its_depth() -> None:
    call = {"c": {"type": "pipeline", "pipeline": "p", "when": "true"}}
    parent, depth = None, 0
    while True:
        play = Play(call, parent=parent)
        if play.run.has_ended:
            break
        (child,) = play.subruns()
        parent, depth = child.accepted.parent, depth + 1
    assert depth == 32
    assert play.run.error is not None
    assert play.run.error.code == "runs_nest_too_deep"


def test_a_run_is_degraded_by_a_sub_run_that_is() -> None:
    play = Play({"c": {"type": "pipeline", "pipeline": "other"}})
    result = AttemptFinished(run_id="r1", step="c", attempt=1, output=1, degraded=True)
    play.send(result)
    assert (play.run.status, play.run.output.value) == ("degraded", 1)


def test_a_node_that_succeeded_at_a_later_attempt_has_no_error() -> None:
    given = {"error": "{{ nodes.a.error }}", "state": "{{ nodes.a.state }}"}
    play = Play({"a": python(retry={"on": ["busy"]}), "b": python(**{"with": given})})
    play.finish("a", error=ErrorInfo(code="busy", message="it is busy"))
    play.fire()
    play.finish("a", 1)
    assert play.take("b").input == {"error": None, "state": "succeeded"}
