"""A step that a worker passes on, because it does not know the handler, waits for one that does."""

import pytest

from hocket.coordinator.core.run.retries import ASKED_ANEW_MS, MAX_JITTER
from hocket.schemas.messages import HandlerWait, SignalReceived, TimerFired
from hocket.schemas.pipeline.handlers import HandlerNotHere
from hocket.workers.runtime.journal.errors import JournalTaken
from support.run_player import START_MS, Play, python, request_of

NOT_HERE = HandlerNotHere(handler="m:f", reason="`m` has no `f`").info()


def until_dispatched(play: Play) -> None:
    """Let time go on to the step's next dispatch, or to the run's end."""
    while play.run.status == "running" and not play.waiting():
        play.now_ms = play.wakes[-1]
        play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))


def test_it_is_handed_out_again_under_its_number_and_the_run_goes_on() -> None:
    play = Play({"a": python(retry={"max_attempts": 1})}, output="{{ nodes.a.output }}")
    waited = []
    for _ in range(12):
        play.finish("a", error=NOT_HERE)
        assert play.run.status == "running"
        step = play.read_back().steps["a"]  # what people see of it, and the next owner knows
        assert (step.state, step.attempt, step.tries) == ("backoff", 1, ())
        assert step.error is not None
        assert "the last one says: `m` has no `f`" in step.error.message
        before_ms = play.now_ms
        until_dispatched(play)
        waited.append(play.now_ms - before_ms)
    dispatches = [one for one in play.commands if hasattr(one, "dispatched_at_ms")]
    moments = [one.dispatched_at_ms for one in dispatches]
    assert len({*moments}) == len(moments) == 13  # streams know none of them yet
    assert waited[0] < 100
    assert ASKED_ANEW_MS[1] / 2 < waited[-1] <= ASKED_ANEW_MS[1] * (1 + MAX_JITTER)
    play.finish("a", output=7)
    assert (play.run.status, play.run.steps["a"].attempt) == ("succeeded", 1)
    assert play.run.steps["a"].error is None


def test_it_waits_until_the_deadline_and_says_for_what() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 60_000})
    while play.run.status == "running":
        play.finish("a", error=NOT_HERE)
        until_dispatched(play)
    assert play.run.status == "failed"
    assert play.now_ms - START_MS > 50_000
    assert play.run.error is not None
    assert play.run.error.code == "handler_not_here"


def test_who_has_a_type_of_its_own_knows_its_handler() -> None:
    play = Play({"a": {"type": "crm.lookup"}})
    play.finish("a", error=NOT_HERE)
    assert play.run.status == "failed"


def test_a_failure_after_it_was_passed_on_is_tried_again_as_ever() -> None:
    play = Play({"a": python(retry={"on": ["busy"], "max_attempts": 2})})
    play.finish("a", error=NOT_HERE)
    until_dispatched(play)
    play.finish("a", error=NOT_HERE.model_copy(update={"code": "busy"}))
    until_dispatched(play)
    assert play.run.steps["a"].attempt == 2
    play.finish("a", output=1)
    assert play.run.status == "succeeded"


@pytest.mark.parametrize("node", [python(), {"type": "crm.lookup"}], ids=["python", "own type"])
def test_an_attempt_whose_journal_a_lost_history_has_is_handed_out_again(
    node: dict[str, str],
) -> None:
    """A later attempt of a part of the log that was lost wrote to the journal; the present one ends
    without doing anything, and one that is handed out later may go on."""
    play = Play({"a": node})
    play.finish("a", waits=(HandlerWait(ordinal=1, signal="go"),))
    play.send(SignalReceived(run_id="r1", signal_id="s", name="go", payload=5))
    before = request_of(play.dispatched[-1])
    play.now_ms += 5
    play.finish("a", error=JournalTaken().info())
    assert play.run.status == "running"
    until_dispatched(play)
    again = request_of(play.dispatched[-1])
    assert (again.attempt, again.resumption) == (before.attempt, before.resumption)
    assert again.dispatched_at_ms is not None
    assert before.dispatched_at_ms is not None
    assert again.dispatched_at_ms > before.dispatched_at_ms
    play.finish("a", output=7)
    assert play.run.status == "succeeded"
