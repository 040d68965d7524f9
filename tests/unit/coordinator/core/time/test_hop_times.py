"""What steps take beside their own time, and that a run in a hurry leaves time for it."""

import pytest

from hocket.coordinator.core.run.infeasible import LAST_MOMENT_SD
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.time.duration_estimates import HOP, Estimate, outlook
from hocket.coordinator.core.time.hop_times import RISE, hop_ms, observe_hop
from hocket.schemas.messages import AttemptFinished, Priority
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import START_MS, Play, python
from support.runs.infeasible import DEGRADE, cancelled, draft, pass_to

HOP_MS, HOP_SD_MS = 200.0, 50.0


def measured(weight: float = 10.0) -> dict[str, Estimate]:
    return {HOP: Estimate(HOP_MS, HOP_SD_MS**2, weight)}


def ended(slo_ms: float = 100.0, priority: Priority = Priority.STANDARD) -> tuple[Run, Step]:
    """A run's only step: handed out at 0, back at 80 ms."""
    play = Play({"a": python()}, spec={"slo_ms": slo_ms})
    play.run.priority = priority
    play.now_ms = START_MS + 80
    play.finish("a", started_at_ms=5_000.0, finished_at_ms=5_050.0)
    return play.run, play.run.steps["a"]


def event(**fields: float) -> AttemptFinished:
    times = {"started_at_ms": 5_000.0, "finished_at_ms": 5_050.0} | fields
    return AttemptFinished(run_id="r1", step="a", attempt=1, **times)  # type: ignore[arg-type]


def test_a_hop_is_the_time_of_an_attempt_without_that_of_its_worker() -> None:
    assert hop_ms(*ended(), event()) == pytest.approx(30.0)


def test_steps_in_no_hurry_are_not_measured_unless_they_always_go_first() -> None:
    assert hop_ms(*ended(slo_ms=60_000), event()) is None
    assert hop_ms(*ended(60_000, Priority.INTERACTIVE), event()) == pytest.approx(30.0)


def test_an_attempt_that_no_worker_began_has_no_hop() -> None:
    assert hop_ms(*ended(), event(started_at_ms=0.0)) is None


def test_a_long_hop_counts_at_once_and_short_ones_take_it_back_slowly() -> None:
    estimate = None
    for _ in range(100):
        estimate = observe_hop(estimate, 10.0)
    assert estimate == Estimate(pytest.approx(10.0), pytest.approx(0.0), estimate.weight)
    risen = observe_hop(estimate, 210.0)
    assert risen.mean_ms == pytest.approx(10.0 + RISE * 200.0)
    assert risen.variance == pytest.approx(RISE * (1 - RISE) * 200.0**2)
    falling = risen
    for _ in range(10):
        falling = observe_hop(falling, 10.0)
    assert risen.mean_ms / 2 < falling.mean_ms < risen.mean_ms


def test_a_node_is_given_up_early_enough_for_the_hops_of_what_comes_instead() -> None:
    plan = compile_pipeline({"pipeline": "p", "nodes": draft(), **DEGRADE})
    play = Play(draft(), spec=DEGRADE)
    play.forecast = PlanForecast(play.compiled, outlook(plan, measured()))
    play.finish("a")
    variance = 100**2 + 2 * HOP_SD_MS**2
    instead_ms = 500 + 1_000 + 2 * HOP_MS + LAST_MOMENT_SD * variance**0.5
    pass_to(play, 10_000 - instead_ms - 1)
    assert play.waiting() == ["draft"]
    pass_to(play, 10_000 - instead_ms)
    assert cancelled(play) == [("draft", 1)]


def test_a_few_hops_say_nothing_and_pipelines_that_do_not_degrade_leave_no_time() -> None:
    degrading = compile_pipeline({"pipeline": "p", "nodes": draft(), **DEGRADE})
    assert outlook(degrading, measured(weight=2.0)) == outlook(degrading, {})
    nodes = {name: node | {"fast": None} for name, node in draft().items()}
    hoping = compile_pipeline({"pipeline": "p", "nodes": nodes, "slo_ms": 10_000})
    assert outlook(hoping, measured()) == outlook(hoping, {})
