"""The end of the log was lost, and what came before a step came out otherwise: what was executed for the
lost history is not taken for the present one."""

from typing import Any

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import AttemptFinished, RunAccepted
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.workers.errors import AttemptCancelled
from support.run_player import Play, python

NODES = {"a": python(), "b": python(needs=["a"])}
LOST_MS = 999_000.0
"""When the step was handed out in the history that was lost."""


def result(step: str, given: Any, output: Any = "old", **more: Any) -> AttemptFinished:
    """What comes from an execution of the first attempt with some input."""
    return AttemptFinished(
        run_id="r1",
        step=step,
        attempt=1,
        output=output,
        dispatched_at_ms=LOST_MS,
        input_digest=input_digest(given),
        **more,
    )


def test_an_early_result_of_the_same_input_is_taken() -> None:
    play = Play(NODES)
    play.send(result("b", {"input": {}, "a": 1}))
    play.finish("a", 1)
    assert play.run.status == "succeeded"
    assert play.run.steps["b"].output.value == "old"


def test_an_early_result_of_another_input_is_not_taken_and_the_step_is_asked_for_anew() -> None:
    play = Play(NODES)
    play.send(result("b", {"input": {}, "a": 1}))
    play.finish("a", 2)
    request = play.take("b")
    assert (request.attempt, request.input["a"]) == (2, 2)
    assert play.run.steps["b"].state == "dispatched"


def test_a_result_of_another_input_does_not_end_the_attempt_that_is_out() -> None:
    play = Play(NODES)
    play.finish("a", 2)
    first = play.take("b")
    play.send(result("b", {"input": {}, "a": 1}))
    assert play.take("b").attempt == 2
    cancelled = [c for c in play.commands if isinstance(c, CancelAttempt)]
    assert [(c.step, c.attempt) for c in cancelled] == [("b", first.attempt)]


def test_a_step_that_was_asked_for_anew_has_all_its_retries_left() -> None:
    retry = {"max_attempts": 2, "backoff_ms": 1}
    play = Play({"a": python(), "b": python(needs=["a"], retry=retry)})
    play.send(result("b", {"input": {}, "a": 1}))
    play.finish("a", 2)
    busy = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
    play.finish("b", error=busy)
    assert play.run.steps["b"].state == "backoff"
    play.fire()
    assert play.dispatched[0].attempt == 3
    play.finish("b", error=busy)
    assert play.run.status == "failed"


def test_a_result_that_answers_the_present_request_is_taken_without_a_look_at_its_digest() -> None:
    play = Play(NODES)
    play.finish("a", 2)
    request = play.take("b")
    answer = result("b", "not looked at").model_copy(
        update={"dispatched_at_ms": request.dispatched_at_ms}
    )
    play.send(answer)
    assert play.run.steps["b"].output.value == "old"


def test_an_attempt_that_was_stopped_upon_a_lost_result_is_made_again() -> None:
    """Its second message was cancelled because its result had arrived, which the log then lost."""
    play = Play({"a": python(retry={"max_attempts": 2, "backoff_ms": 1})})
    reason = "its result has arrived"
    play.finish("a", error=AttemptCancelled(reason=reason).info())
    assert play.run.steps["a"].state == "backoff"
    play.fire()
    busy = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
    play.finish("a", error=busy)
    play.fire()
    assert play.dispatched[0].attempt == 3
    play.finish("a", 1)
    assert (play.run.status, play.run.steps["a"].attempt) == ("succeeded", 3)


def test_a_step_that_is_always_stopped_fails_by_the_deadline() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 2_000})
    for _ in range(100):
        play.finish("a", error=AttemptCancelled(reason="?").info())
        if play.run.status != "running":
            break
        play.fire()
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == AttemptCancelled.code


def test_inputs_are_the_same_in_whatever_order_postgres_gives_their_keys_back() -> None:
    assert input_digest({"bb": [{"x": 1, "y": None}], "a": 2}) == input_digest(
        {"a": 2, "bb": [{"y": None, "x": 1}]}
    )
    assert input_digest({"a": [1, 2]}) != input_digest({"a": [2, 1]})


def test_a_sub_run_of_another_input_is_started_anew() -> None:
    nodes = {
        "a": python(),
        "sub": {
            "type": "pipeline",
            "pipeline": "c",
            "needs": ["a"],
            "with": {"x": "{{ nodes.a.output }}"},
        },
    }
    assert compile_pipeline({"pipeline": "p", "nodes": nodes})
    play = Play(nodes)
    play.send(result("sub", {"x": 1}))
    play.finish("a", 2)
    children: list[RunAccepted] = [c.accepted for c in play.commands if hasattr(c, "accepted")]
    assert [(c.parent.attempt, c.input) for c in children if c.parent] == [(2, {"x": 2})]


def test_a_sub_run_is_told_the_digest_of_what_its_step_gave_it() -> None:
    play = Play({"sub": {"type": "pipeline", "pipeline": "c", "with": {"x": 1}}})
    [child] = play.subruns()
    assert child.accepted.parent is not None
    assert child.accepted.parent.input_digest == input_digest({"x": 1})
    assert child.accepted.parent.input_digest == input_digest(child.accepted.input)
