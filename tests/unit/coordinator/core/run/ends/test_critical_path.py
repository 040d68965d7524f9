"""The critical path of runs made by hand: which steps the end waited for, and where the time went."""

from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hocket.coordinator.core.run.ends import critical_path as module
from hocket.coordinator.core.run.ends.critical_path import timing_of
from hocket.coordinator.core.run.state.run import Run
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    CancelRequested,
    SignalReceived,
    TimerFired,
    Timing,
)
from support.run_player import START_MS, Play, python

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
WRONG = ErrorInfo(code="wrong", message="wrong", error_class=ErrorClass.PERMANENT)


def at(play: Play, ms: float) -> None:
    """Move the log's clock to `ms` after the acceptance."""
    play.now_ms = START_MS + ms


def finish(
    play: Play,
    key: str,
    *,
    dispatched: float,
    ms: float,
    skew_ms: float = 0.0,
    output: Any = None,
    error: ErrorInfo | None = None,
    timing: Timing | None = None,
) -> None:
    """Let a worker finish at `ms`: the coordinator took 1 ms to publish, the step waited 2 ms more for
    a slot, and its result was 3 ms on the way."""
    at(play, ms)
    start_ms = START_MS + dispatched
    play.finish(
        key,
        output,
        error,
        queued_at_ms=start_ms + 1,
        started_at_ms=start_ms + 3 + skew_ms,
        finished_at_ms=START_MS + ms - 3 + skew_ms,
        timing=timing,
    )


class Piece(NamedTuple):
    """A piece of a critical path; `folded`: how many it stands for."""

    step: str
    node: str
    attempt: int
    kind: str
    us: int
    folded: int


def path_of(run: Run) -> list[Piece]:
    return [Piece(*piece) for piece in run.critical_path]


def pieces(run: Run) -> list[tuple[str, str, float]]:
    """Return step, kind and milliseconds of each piece."""
    assert run.finished_at_ms is not None
    return [(s.step, s.kind, s.us / 1_000) for s in path_of(run)]


def steps(run: Run) -> list[str]:
    """Return the steps on the path, each once per visit."""
    found: list[str] = []
    for segment in path_of(run):
        if not found or found[-1] != segment.step:
            found.append(segment.step)
    return found


def total_us(run: Run) -> int:
    assert run.finished_at_ms is not None
    return round((run.finished_at_ms - run.accepted_at_ms) * 1_000)


def test_a_chain_is_on_the_path_whole_each_piece_of_its_time_by_kind() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    finish(play, "a", dispatched=0, ms=20)
    timing = Timing(gateway_queue_ms=10, model_ms=50)
    finish(play, "b", dispatched=20, ms=120, timing=timing)
    assert pieces(play.run) == [
        ("a", "coordinator", 1),
        ("a", "queue", 2),
        ("a", "execution", 14),
        ("a", "coordinator", 3),
        ("b", "coordinator", 1),
        ("b", "queue", 2),
        ("b", "gateway_queue", 10),
        ("b", "model", 50),
        ("b", "execution", 34),
        ("b", "coordinator", 3),
    ]
    assert total_us(play.run) == 120_000


def test_of_parallel_steps_the_one_that_was_waited_for_is_on_the_path() -> None:
    nodes = {
        "a": python(),
        "fast": python(needs=["a"]),
        "slow": python(needs=["a"]),
        "end": python(needs=["fast", "slow"]),
    }
    play = Play(nodes)
    finish(play, "a", dispatched=0, ms=10)
    finish(play, "slow", dispatched=10, ms=90)
    finish(play, "fast", dispatched=10, ms=100)  # slower after all
    finish(play, "end", dispatched=100, ms=130)
    assert steps(play.run) == ["a", "fast", "end"]


@pytest.mark.parametrize("skew_ms", [-500.0, 500.0, 86_400_000.0])
def test_a_worker_whose_clock_is_wrong_is_believed_in_durations_only(skew_ms: float) -> None:
    play = Play({"a": python()})
    finish(play, "a", dispatched=0, ms=50, skew_ms=skew_ms)
    by_kind = {kind: ms for _, kind, ms in pieces(play.run)}
    assert by_kind["execution"] == 44
    assert sum(by_kind.values()) <= 50
    assert sum(ms for _, _, ms in pieces(play.run)) == 50


def test_a_worker_that_claims_more_time_than_there_was_gets_what_there_was() -> None:
    play = Play({"a": python()})
    at(play, 10)
    play.finish(
        "a", queued_at_ms=START_MS - 5, started_at_ms=START_MS, finished_at_ms=START_MS + 99
    )
    assert pieces(play.run) == [("a", "execution", 10)]


def test_retries_and_their_backoffs_are_on_the_path() -> None:
    play = Play({"a": python(retry={"max_attempts": 2, "backoff_ms": 100, "max_backoff_ms": 100})})
    finish(play, "a", dispatched=0, ms=20, error=BUSY)
    due_ms = min(play.wakes)
    play.now_ms = due_ms
    play.send(TimerFired(run_id="r1", due_at_ms=due_ms))
    back_ms = due_ms - START_MS
    finish(play, "a", dispatched=back_ms, ms=back_ms + 10)
    found = [(s.attempt, s.kind) for s in path_of(play.run)]
    assert found == [
        (1, "coordinator"),
        (1, "queue"),
        (1, "execution"),
        (1, "coordinator"),
        (1, "backoff"),
        (2, "coordinator"),
        (2, "queue"),
        (2, "execution"),
        (2, "coordinator"),
    ]
    backoff_us = next(s.us for s in path_of(play.run) if s.kind == "backoff")
    assert backoff_us == pytest.approx((back_ms - 20) * 1_000, abs=1)
    assert backoff_us >= 100_000


def test_a_fallback_waits_for_what_it_stands_in_for() -> None:
    nodes = {
        "a": python(),
        "f": python(
            needs=["a"], fallback=[{"on": ["other"], "node": python()}, {"node": python()}]
        ),
        "z": python(needs=["f"]),
    }
    play = Play(nodes)
    finish(play, "a", dispatched=0, ms=10)
    finish(play, "f", dispatched=10, ms=30, error=WRONG)
    finish(play, "f!2", dispatched=30, ms=60)
    finish(play, "z", dispatched=60, ms=70)
    assert steps(play.run) == ["a", "f", "f!2", "z"]
    assert sum(ms for step, _, ms in pieces(play.run) if step == "f") == 20


def test_a_fallback_of_a_container_waits_for_the_child_that_failed() -> None:
    inner = {"x": python(), "y": python(needs=["x"]), "w": python()}
    nodes = {"g": {"type": "graph", "nodes": inner, "fallback": [{"node": python()}]}}
    play = Play(nodes)
    finish(play, "g/x", dispatched=0, ms=10)
    finish(play, "g/y", dispatched=10, ms=25, error=WRONG)
    finish(play, "g!1", dispatched=25, ms=40)
    assert steps(play.run) == ["g/x", "g/y", "g!1"]


def test_an_item_that_waited_for_room_waits_for_the_item_that_made_it() -> None:
    nodes = {"m": python(map={"over": "input.xs", "concurrency": 2}), "z": python(needs=["m"])}
    play = Play(nodes, input={"xs": [0, 1, 2, 3]})
    finish(play, "m[1]", dispatched=0, ms=10)  # makes room for 2
    finish(play, "m[2]", dispatched=10, ms=50)  # makes room for 3
    finish(play, "m[0]", dispatched=0, ms=60)
    finish(play, "m[3]", dispatched=50, ms=80)
    finish(play, "z", dispatched=80, ms=90)
    assert steps(play.run) == ["m[1]", "m[2]", "m[3]", "z"]


def test_a_loop_is_on_the_path_round_by_round() -> None:
    play = Play({"l": python(loop={"until": "round >= 3"})})
    for number in (1, 2, 3):
        finish(play, f"l#{number}", dispatched=10 * (number - 1), ms=10 * number)
    assert steps(play.run) == ["l#1", "l#2", "l#3"]


def test_of_a_race_the_winner_is_on_the_path_and_not_who_was_cut_off() -> None:
    nodes = {
        "r": {"type": "race", "branches": {"one": python(), "two": python()}},
        "z": python(needs=["r"]),
    }
    play = Play(nodes)
    finish(play, "r~two", dispatched=0, ms=30)
    finish(play, "z", dispatched=30, ms=40)
    assert steps(play.run) == ["r~two", "z"]


def test_of_a_race_for_the_best_the_last_one_is_on_the_path() -> None:
    branches = {"one": python(), "two": python()}
    race = {"type": "race", "pick": "best", "score": "output", "branches": branches}
    play = Play({"r": race})
    finish(play, "r~one", dispatched=0, ms=30, output=9)
    finish(play, "r~two", dispatched=0, ms=50, output=1)
    assert (play.run.output.value, steps(play.run)) == (9, ["r~two"])


def test_skipped_steps_take_no_time_and_the_path_goes_on_behind_them() -> None:
    nodes = {
        "a": python(),
        "b": python(needs=["a"], when="false"),
        "c": python(needs=["b"]),
        "d": python(needs=["a", "c"]),
    }
    play = Play(nodes)
    finish(play, "a", dispatched=0, ms=10)
    finish(play, "d", dispatched=10, ms=20)
    assert steps(play.run) == ["a", "d"]


def test_an_approval_is_time_that_a_person_took() -> None:
    play = Play({"a": python(), "ok": {"type": "approval", "needs": ["a"]}})
    finish(play, "a", dispatched=0, ms=10)
    at(play, 5_000)
    play.send(
        SignalReceived(run_id="r1", signal_id="s", name="ok", payload={"approved": True}, by="eve")
    )
    assert pieces(play.run)[-1] == ("ok", "waiting", 4_990)


def test_a_sub_run_tells_where_its_own_time_went() -> None:
    play = Play({"c": {"type": "pipeline", "pipeline": "child"}})
    (start,) = play.subruns()
    at(play, 100)
    parent = start.accepted.parent
    assert parent is not None
    timing = Timing(coordinator_ms=5, queue_ms=15, execution_ms=30, model_ms=40)
    play.send(
        AttemptFinished(
            run_id=parent.run_id, step=parent.step, attempt=parent.attempt, timing=timing
        )
    )
    found = [(kind, ms) for _, kind, ms in pieces(play.run)]
    # 10 ms from run to run, beside the 5 ms of the child's own
    assert found == [
        ("coordinator", 15),
        ("queue", 15),
        ("model", 40),
        ("execution", 30),
    ]
    assert timing_of(play.run.critical_path) == Timing(
        coordinator_ms=15, queue_ms=15, execution_ms=30, model_ms=40
    )


def test_what_a_planner_emitted_waits_for_the_planner() -> None:
    planner = {
        "type": "planning",
        "model": "m",
        "prompt": "?",
        "emit": {"types": ["python"], "handlers": ["m:f"]},
        "fallback": [{"node": python()}],
    }
    play = Play({"p": planner})
    emitted = {"nodes": {"i": python(), "j": python(needs=["i"])}}
    finish(play, "p", dispatched=0, ms=20, output=emitted)
    finish(play, "p/i", dispatched=20, ms=30)
    finish(play, "p/j", dispatched=30, ms=45, error=WRONG)
    finish(play, "p!1", dispatched=45, ms=60)
    assert steps(play.run) == ["p", "p/i", "p/j", "p!1"]
    assert sum(ms for step, _, ms in pieces(play.run) if step == "p") == 20


def test_a_step_that_the_cache_serves_waited_for_the_cache() -> None:
    play = Play({"a": python(), "c": python(needs=["a"], cache={"ttl_ms": 1_000})})
    finish(play, "a", dispatched=0, ms=10)
    key = play.run.steps["c"].cache_key
    assert key is not None
    at(play, 25)
    play.send(
        CacheAnswered(run_id="r1", step="c", key=key, hit=True, output=1, computed_by_run="r")
    )
    assert pieces(play.run)[-1] == ("c", "cache", 15)


def test_a_step_that_computes_for_the_cache_asked_it_first() -> None:
    play = Play({"c": python(cache={"ttl_ms": 1_000})})
    key = play.run.steps["c"].cache_key
    assert key is not None
    at(play, 5)
    play.send(CacheAnswered(run_id="r1", step="c", key=key, hit=False))
    finish(play, "c", dispatched=5, ms=20)
    assert [kind for _, kind, _ in pieces(play.run)] == [
        "cache",
        "coordinator",
        "queue",
        "execution",
        "coordinator",
    ]


def test_a_run_that_is_cut_off_waited_for_the_step_that_had_been_out_longest() -> None:
    nodes = {"a": python(), "b": python(needs=["a"]), "c": python()}
    play = Play(nodes)
    finish(play, "a", dispatched=0, ms=10)
    at(play, 40)
    play.send(CancelRequested(run_id="r1", by="eve"))
    assert pieces(play.run) == [("c", "execution", 40)]


def test_a_run_that_fails_waited_for_the_step_that_failed() -> None:
    play = Play({"a": python(), "b": python()})
    finish(play, "b", dispatched=0, ms=15, error=WRONG)
    assert (play.run.status, steps(play.run)) == ("failed", ["b"])


def test_a_container_that_took_too_long_waited_for_the_child_it_cut_off() -> None:
    inner = {"x": python(), "y": python(needs=["x"])}
    play = Play({"g": {"type": "graph", "timeout_ms": 50, "nodes": inner}})
    finish(play, "g/x", dispatched=0, ms=10)
    at(play, 50)
    play.send(TimerFired(run_id="r1", due_at_ms=START_MS + 50))
    assert play.run.status == "failed"
    assert pieces(play.run)[-1] == ("g/y", "execution", 40)
    assert steps(play.run) == ["g/x", "g/y"]


def test_a_run_that_is_cut_off_during_a_backoff_waited_for_it() -> None:
    play = Play({"a": python(retry={"max_attempts": 2, "backoff_ms": 1_000})})
    finish(play, "a", dispatched=0, ms=20, error=BUSY)
    at(play, 50)
    play.send(CancelRequested(run_id="r1"))
    assert pieces(play.run)[-1] == ("a", "backoff", 30)


def test_a_log_whose_time_goes_back_makes_empty_pieces_and_no_gap() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    finish(play, "a", dispatched=0, ms=50)
    finish(play, "b", dispatched=50, ms=40)
    assert sum(s.us for s in path_of(play.run)) == total_us(play.run) == 40_000


def test_what_a_repeated_run_takes_over_takes_no_time() -> None:
    first = Play({"a": python(), "b": python(needs=["a"]), "c": python(needs=["b"])})
    finish(first, "a", dispatched=0, ms=10)
    finish(first, "b", dispatched=10, ms=20, error=WRONG)
    again = first.repeat()
    begun_ms = again.run.accepted_at_ms - START_MS
    finish(again, "b", dispatched=begun_ms, ms=begun_ms + 15)
    finish(again, "c", dispatched=begun_ms + 15, ms=begun_ms + 30)
    assert steps(again.run) == ["b", "c"]
    assert sum(s.us for s in path_of(again.run)) == total_us(again.run) == 30_000


def test_a_step_of_a_release_that_kept_less_has_its_start_and_its_end() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    finish(play, "a", dispatched=0, ms=20)
    play.run.steps["a"].took_ms = play.run.steps["a"].queued_at_ms = None
    finish(play, "b", dispatched=20, ms=30)
    assert pieces(play.run)[:2] == [("a", "queue", 3), ("a", "execution", 17)]


def test_a_very_long_path_is_folded_at_its_beginning_and_still_sums_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_SEGMENTS", 8)
    play = Play({"l": python(loop={"until": "round >= 20", "max_rounds": 20})})
    for number in range(1, 21):
        finish(play, f"l#{number}", dispatched=10 * (number - 1), ms=10 * number)
    path = path_of(play.run)
    assert sum(s.us for s in path) == total_us(play.run) == 200_000
    assert [s.step for s in path[-8:]] == ["l#19"] * 4 + ["l#20"] * 4
    assert {(s.node, s.kind, s.folded) for s in path[:-8]} == {
        ("l", "coordinator", 36),
        ("l", "queue", 18),
        ("l", "execution", 18),
    }


# ---- what holds for every run -----------------------------------------------------------------

EMITTED = {"nodes": {"i": python(), "j": python(needs=["i"]), "k": python()}}
EVERYTHING = {
    "plan": {
        "type": "planning",
        "model": "m",
        "with": {"question": "?"},
        "emit": {"types": ["python"], "handlers": ["m:f"]},
        "fallback": [{"node": python()}],
    },
    "m": python(
        needs=["plan"],
        map={"over": "input.xs", "concurrency": 2, "on_item_error": "skip"},
        loop={"until": "round >= 2"},
        retry={"max_attempts": 2, "backoff_ms": 5},
        timeout_ms=400,
    ),
    "r": {
        "type": "race",
        "needs": ["plan"],
        "branches": {"a": python(), "b": python(map={"over": "[1, 2]"}, **{"with": {"i": 1}})},
    },
    "g": {
        "type": "graph",
        "nodes": {"x": python(), "y": python(needs=["x"], optional=True), "z": python(needs=["y"])},
        "timeout_ms": 300,
        "fallback": [{"node": python()}],
    },
    "s": {"type": "signal", "signal": "go", "needs": ["g"]},
    "c": python(needs=["plan"], cache={"ttl_ms": 1_000}, map={"over": "input.xs"}, optional=True),
    "w": python(needs=["r", "c"], when="input.xs | length > 9"),
    "last": python(needs=["m", "s", "w"], fallback=[{"on": ["timeout"], "node": python()}]),
}


@settings(max_examples=150, deadline=None, phases=[p for p in Phase if p is not Phase.explain])
@given(st.data())
def test_the_path_of_any_run_has_no_gap_and_leads_from_the_end_to_the_acceptance(
    data: st.DataObject,
) -> None:
    play = Play(EVERYTHING, input={"xs": [1, 2, 3]}, spec={"slo_ms": 2_000})
    in_order = data.draw(st.booleans())
    moves = [0.25, 3.0, 40.0] if in_order else [0.0, 0.25, 3.0, 40.0, -1.0]
    dispatched: dict[str, float] = {}
    for _ in range(200):
        if play.run.has_ended:
            break
        for waiting in play.dispatched:
            dispatched.setdefault(waiting.step, play.now_ms)
        play.now_ms += data.draw(st.sampled_from(moves))
        looking = [s for s in play.run.steps.values() if s.state == "looking_up"]
        due = [w for w in play.wakes if w <= play.now_ms]
        chance = data.draw(st.integers(0, 19))
        if due and chance < 10:
            play.wakes = [w for w in play.wakes if w > play.now_ms]
            play.send(TimerFired(run_id="r1", due_at_ms=max(due)))
        elif looking and chance < 12:
            step = looking[0]
            hit = data.draw(st.booleans())
            play.send(
                CacheAnswered(
                    run_id="r1", step=step.key, key=step.cache_key or "", hit=hit, output=1
                )
            )
        elif play.dispatched and chance < 18:
            place = data.draw(st.integers(0, len(play.dispatched) - 1))
            key = play.dispatched[place].step
            begun_ms = dispatched.pop(key) + data.draw(st.sampled_from([-50.0, 0.0, 2.0, 90.0]))
            play.finish(
                key,
                EMITTED if key == "plan" else {"k": key},
                data.draw(st.sampled_from([None, None, None, BUSY])),
                queued_at_ms=begun_ms,
                started_at_ms=begun_ms + 1,
                finished_at_ms=begun_ms + data.draw(st.sampled_from([0.0, 2.5, 80.0])),
            )
        elif chance == 18 and data.draw(st.integers(0, 9)) == 0:
            play.send(CancelRequested(run_id="r1"))
        elif chance == 19:
            play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload=1))
    if not play.run.has_ended:
        play.now_ms = max(play.now_ms, play.run.deadline_at_ms)
        play.send(TimerFired(run_id="r1", due_at_ms=play.run.deadline_at_ms))
    run = play.run
    assert run.has_ended
    path = path_of(run)
    assert sum(s.us for s in path) == max(0, total_us(run))
    assert all(s.us > 0 for s in path)
    assert all(s.step in run.steps and run.steps[s.step].node.path == s.node for s in path)
    if not in_order:
        return  # of steps that begin and end at one moment no piece is left to be looked at
    at_us = 0
    for segment in path:
        step = run.steps[segment.step]
        assert step.finished_at_ms is not None
        begun_us, ended_us = (
            round((ms - run.accepted_at_ms) * 1_000)
            for ms in (step.ready_at_ms, step.finished_at_ms)
        )
        assert begun_us <= at_us
        at_us += segment.us
        assert at_us <= ended_us
    assert not path or not _needs(play, path[0].step)
    for earlier, later in zip(steps(run), steps(run)[1:], strict=False):
        assert leads_to(play, earlier, later), (earlier, later)


def _needs(play: Play, key: str) -> tuple[str, ...]:
    """Return the needs of a step or, where it begins with what holds it, of that."""
    while True:
        step = play.run.steps[key]
        plan = node_plan(play, key)
        if step.link == "node" and plan.needs:
            return tuple(plan.needs)
        if step.parent is None:
            return ()
        if step.link == "node" and step.parent.emitted is not None:
            return ("planner",)
        key = step.parent.key


def node_plan(play: Play, key: str) -> Any:
    return play.run.steps[key].node.plan


def around(play: Play, key: str) -> list[str]:
    """Return a step and the steps that hold it, inside out."""
    found = [key]
    while (parent := play.run.steps[found[-1]].parent) is not None:
        found.append(parent.key)
    return found


def leads_to(play: Play, earlier: str, later: str) -> bool:
    """Tell whether one step may be what the other waited for, skipped steps between them aside."""
    if earlier == later:
        return True
    befores, afters = around(play, earlier), around(play, later)
    common = next((k for k in befores if k in afters), "")
    inside_before = [k for k in befores if k not in afters]
    inside_after = [k for k in afters if k not in befores]
    if not inside_before:
        return True  # it opened what the later one is in (a planner, a node before its fallback)
    if not inside_after:
        return False
    one, two = play.run.steps[inside_before[-1]], play.run.steps[inside_after[-1]]
    if two.link == "node":
        names, scope = {two.key}, "" if one.parent is None else one.parent.key
        while True:
            needs = {
                f"{scope}/{n}" if scope else n
                for name in names
                if name in play.run.steps
                for n in node_plan(play, name).needs
            }
            if one.key in needs:
                return True
            if needs <= names:
                return False
            names |= needs
    if two.link == "fallback":
        return one.link != "fallback" or one.index < two.index
    if two.link == "round":
        return one.index == two.index - 1
    return two.link == "item" and one.finished_at_ms == two.ready_at_ms and bool(common)
