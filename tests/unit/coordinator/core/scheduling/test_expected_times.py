"""What a step is said to take has a bound: it orders everybody's steps, and is told to workers."""

import pytest

from hocket.coordinator.core.scheduling.backlog import ENOUGH_FINISHED, Backlog
from hocket.coordinator.core.scheduling.load_prediction import PlanPath, judge, predict
from hocket.coordinator.core.scheduling.planned_work import work_of
from hocket.coordinator.core.scheduling.type_queue import Capacity
from hocket.coordinator.core.time.duration_estimates import outlook
from hocket.schemas.checks.bounded import MAX_MILLISECONDS
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import python

HUGE = [(1e308, 1e308), (1e308, 0.0), (1e-320, 1e200), (1e15, 1e15), (float("inf"), 0.0)]


@pytest.mark.parametrize(("mean_ms", "sd_ms"), HUGE)
def test_a_pipeline_that_says_more_is_refused(mean_ms: float, sd_ms: float) -> None:
    node = python(expect={"mean_ms": mean_ms, "sd_ms": sd_ms})
    with pytest.raises(InvalidInput, match=r"nodes\.a\.expect\.(mean|sd)_ms"):
        compile_pipeline({"pipeline": "p", "nodes": {"a": node}})


@pytest.mark.parametrize(("mean_ms", "sd_ms"), HUGE)
def test_of_one_that_was_applied_before_no_more_is_counted(mean_ms: float, sd_ms: float) -> None:
    nodes = {
        f"n{i}": python(
            expect={"mean_ms": mean_ms, "sd_ms": sd_ms}, needs=[f"n{i - 1}"] if i else []
        )
        for i in range(100)
    }
    plan = compile_pipeline({"pipeline": "p", "nodes": nodes}, applied=True)
    for expected in outlook(plan, {}).values():
        assert expected.own.tail_ms() + expected.after.tail_ms() < MAX_MILLISECONDS
    backlog = Backlog()
    for _ in range(ENOUGH_FINISHED):
        backlog.finished("r", "python", 100.0, 100.0, tenant="t")
    for i in range(8):
        backlog.promise(
            f"r{i}",
            partition=0,
            priority=Priority.STANDARD,
            tenant="other",
            deadline_at_ms=1e12,
            work=work_of(plan, outlook(plan, {})),
            now_ms=1e12 - 1e5,
        )
    clear_ms = backlog.clear_ms(
        "python",
        priority=Priority.STANDARD,
        tenant="t",
        deadline_at_ms=1e12,
        capacity=Capacity(8.0, 0.0),
    )
    asked = compile_pipeline({"pipeline": "q", "nodes": {"a": python()}})
    prediction = predict(PlanPath(asked, outlook(asked, {})), lambda _: clear_ms)
    assert judge(prediction, 60_000.0, "queue") == "admit"
