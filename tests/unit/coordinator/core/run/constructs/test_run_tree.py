"""What a task may come to through pipelines that call others, or themselves."""

from typing import Any

import pytest

from hocket.coordinator.core.run.commands import Wake
from hocket.coordinator.core.run.machine import resume
from hocket.schemas.errors import ErrorClass
from hocket.schemas.ids import child_run_id
from hocket.schemas.messages import RunParent, SignalReceived
from support.run_player import START_MS, Play, python


def calls(**fields: Any) -> dict[str, Any]:
    return {"type": "pipeline", "pipeline": "q"} | fields


def over(count: int) -> dict[str, Any]:
    return {"over": f"{{{{ range({count}) | list }}}}", "concurrency": 1_000}


def runs_of(nodes: dict[str, Any], max_runs: int, limit: int = 30_000) -> int:
    """Return how many runs a task comes to whose pipeline and the one it calls are the same."""
    spec = {"max_runs": max_runs, "slo_ms": 600_000}
    parents: list[RunParent | None] = [None]
    count = 0
    while parents:
        parent = parents.pop()
        name = "r" if parent is None else child_run_id(parent.run_id, parent.step, parent.attempt)
        play = Play(nodes, run_id=name, spec=spec, parent=parent, input={"value": 1})
        parents += [started.accepted.parent for started in play.subruns()]
        count += 1
        assert count <= limit
    return count - 1


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": calls(map=over(10))},
        {"a": calls(map=over(300))},
        {"a": calls(), "b": calls()},
        {"a": calls(map=over(3)), "b": calls(map=over(4))},
        {"a": {"type": "graph", "map": over(3), "nodes": {"x": calls(map=over(2)), "y": calls()}}},
        {"a": calls(loop={"until": "round > 9", "max_rounds": 4})},
        {"a": {"type": "race", "branches": {"x": calls(), "y": calls(), "z": calls(map=over(5))}}},
    ],
)
def test_a_pipeline_that_calls_itself_ends_at_its_bound(nodes: dict[str, Any]) -> None:
    assert runs_of(nodes, 500) <= 500


def test_a_chain_may_be_as_deep_as_runs_may_nest() -> None:
    assert runs_of({"a": calls()}, 10_000) == 32


def test_a_map_may_begin_as_many_runs_as_are_left() -> None:
    for allowed, count in ((200, 200), (199, 0)):
        play = Play({"a": calls(map=over(200))}, spec={"max_runs": allowed, "slo_ms": 600_000})
        assert len(play.subruns()) == count
        if not count:
            assert play.run.error is not None
            assert play.run.error.code == "too_many_runs"
            assert "199" in play.run.error.message


def test_what_is_left_stands_with_the_sub_run() -> None:
    play = Play({"a": calls(map=over(4)), "b": calls()}, spec={"max_runs": 800})
    left = {s.accepted.parent.step: s.accepted.parent.runs_left for s in play.subruns()}  # type: ignore[union-attr]
    assert left == {"b": 399} | {f"a[{item}]": 99 for item in range(4)}


def test_every_attempt_of_a_sub_run_counts() -> None:
    play = Play({"a": calls(retry={"max_attempts": 4})}, spec={"max_runs": 800})
    (started,) = play.subruns()
    assert started.accepted.parent is not None
    assert started.accepted.parent.runs_left == 199


def test_a_parent_of_an_older_release_says_nothing_and_the_usual_bound_holds() -> None:
    parent = RunParent(run_id="r0", step="a", attempt=1, partition=0, dispatched_at_ms=START_MS)
    (started,) = Play({"a": calls()}, parent=parent).subruns()
    assert started.accepted.parent is not None
    assert started.accepted.parent.runs_left == 9_999


def test_a_map_of_sub_runs_over_nothing_gives_nothing() -> None:
    play = Play({"a": calls(map={"over": "input.none"})}, input={"none": []})
    assert (play.run.status, play.run.output.value) == ("succeeded", [])


@pytest.mark.parametrize(
    ("late_ms", "given_ms"), [(0, 8_000), (2_900, 8_000), (3_500, 10_000), (9_000, 10_000)]
)
def test_a_sub_run_of_a_late_run_may_take_until_its_deadline(late_ms: int, given_ms: int) -> None:
    nodes = {
        "a": python(expect={"mean_ms": 1_000}),
        "b": calls(needs=["a"], expect={"mean_ms": 5_000}),
        "c": python(needs=["b"], expect={"mean_ms": 2_000}),
    }
    play = Play(nodes, spec={"slo_ms": 10_000})
    play.now_ms += late_ms
    play.finish("a")
    (started,) = play.subruns()
    assert started.accepted.deadline_at_ms == START_MS + given_ms


def test_a_sub_run_is_told_when_the_timeout_of_its_step_is_over() -> None:
    play = Play({"a": calls(timeout_ms=2_000), "b": calls()}, spec={"slo_ms": 10_000})
    told = {s.accepted.parent.step: s.accepted.parent.times_out_at_ms for s in play.subruns()}  # type: ignore[union-attr]
    assert told == {"a": START_MS + 2_000, "b": None}


@pytest.mark.parametrize(
    ("left_ms", "times_out_ms"),
    [(2_000, 2_000), (500, 2_000)],
    ids=["its deadline is the timeout", "its deadline is earlier"],
)
@pytest.mark.parametrize("is_read_back", [False, True])
def test_a_wait_in_a_sub_run_does_not_move_its_deadline_beyond_the_timeout_of_its_step(
    left_ms: int, times_out_ms: int, is_read_back: bool
) -> None:
    nodes = {"ok": {"type": "approval"}, "then": python(needs=["ok"])}
    play = Play(nodes, parent=timed(times_out_ms), spec={"slo_ms": left_ms})
    while play.run.status == "running" and play.now_ms < START_MS + 60_000:
        if is_read_back:  # as its next owner does
            play.run = play.read_back()
            play.wakes = [
                one.at_ms
                for one in resume(play.run, play.now_ms, play.forecast).commands
                if isinstance(one, Wake)
            ]
        play.fire()
    assert (play.run.status, play.now_ms) == ("expired", START_MS + times_out_ms)
    assert play.run.deadline_at_ms == START_MS + times_out_ms
    assert play.run.error is not None
    assert play.run.error.code == "deadline_exceeded"
    assert play.run.error.error_class is ErrorClass.TIMEOUT
    assert f"{times_out_ms} ms after" in play.run.error.message


def test_a_sub_run_whose_wait_is_over_has_what_is_left_of_the_timeout() -> None:
    nodes = {"ok": {"type": "approval"}, "then": python(needs=["ok"])}
    play = Play(nodes, parent=timed(2_000), spec={"slo_ms": 1_000})
    play.now_ms += 1_500
    answer = {"approved": True}
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="ok", payload=answer, by="ann"))
    request = play.take("then")
    assert request.run_deadline_at_ms == play.run.deadline_at_ms == START_MS + 2_000
    assert request.timeout_ms == 500


def timed(times_out_ms: int) -> RunParent:
    return RunParent(
        run_id="r0",
        step="a",
        attempt=1,
        partition=0,
        dispatched_at_ms=START_MS,
        times_out_at_ms=START_MS + times_out_ms,
    )
