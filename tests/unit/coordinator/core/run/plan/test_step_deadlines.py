"""Steps' deadlines and timeouts."""

from hocket.coordinator.core.time.duration_estimates import TAIL_SD
from support.run_player import START_MS, Play, python, request_of


def test_a_steps_deadline_leaves_the_tail_of_the_path_behind_it() -> None:
    expect = {"mean_ms": 100, "sd_ms": 30}
    play = Play(
        {
            "a": python(),
            "b": python(needs=["a"], expect=expect),
            "c": python(needs=["b"], expect=expect),
        },
        spec={"slo_ms": 10_000},
    )
    request = request_of(play.dispatched[0])
    tail_ms = 200 + TAIL_SD * (30**2 + 30**2) ** 0.5
    assert abs(request.deadline_at_ms - (START_MS + 10_000 - tail_ms)) <= 0.001  # a microsecond


def test_a_timeout_is_that_of_an_attempt_and_not_of_the_map_around_it() -> None:
    node = python(timeout_ms=100, map={"over": "[1, 2]", "concurrency": 1})
    play = Play({"m": node, "z": python()})
    assert min(play.wakes) == START_MS + 60_000  # the deadline: no wake-up of the map
    assert play.take("m[0]").timeout_ms == 100


def test_the_timeout_of_a_graph_holds_for_each_item_anew() -> None:
    graph = {"type": "graph", "timeout_ms": 100, "nodes": {"x": python()}}
    mapped = {"map": {"over": "[1, 2]", "concurrency": 1, "on_item_error": "skip"}}
    play = Play({"m": graph | mapped})
    play.fire()
    assert play.waiting() == ["m[1]/x"]
    play.finish("m[1]/x", 7)
    assert (play.run.status, play.run.output.value) == ("degraded", [None, 7])


def test_the_timeout_of_a_sub_pipeline_is_its_runs_deadline() -> None:
    play = Play({"c": {"type": "pipeline", "pipeline": "other", "timeout_ms": 100}})
    (started,) = play.subruns()
    assert started.accepted.deadline_at_ms == START_MS + 100
