"""What tasks are judged by is worked out once, and remembered within bounds."""

from typing import Any

import pytest

from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.time.duration_estimates import DurationForecast, outlook
from hocket.coordinator.dispatch import workload as module
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.admission_queue import MAX_WAITING_TASKS
from hocket.schemas.messages import Priority, RunAccepted
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

pytestmark = pytest.mark.plain

TASK = RunAccepted(
    run_id="r",
    tenant="t",
    pipeline="p",
    version=1,
    input={},
    priority=Priority.STANDARD,
    deadline_at_ms=1.0,
)


class Counted(module._Expected):
    made = 0

    def __init__(self, plan: Plan, outlook: DurationForecast) -> None:
        super().__init__(plan, outlook)
        Counted.made += 1


def plan_of(nodes: int) -> Plan:
    step = {"type": "python", "handler": "m:f"}
    document: dict[str, Any] = {"pipeline": "p", "nodes": {f"a{n}": step for n in range(nodes)}}
    return compile_pipeline(document)


def worked_out(monkeypatch: pytest.MonkeyPatch, *, pipelines: int, nodes: int) -> int:
    """Return how often something is worked out for the tasks of so many pipelines, judged twice."""
    monkeypatch.setattr(module, "_Expected", Counted)
    Counted.made = 0
    load, plan = Load(Backlog(), Gate()), plan_of(nodes)
    outlooks = [outlook(plan, {}) for _ in range(pipelines)]
    for _ in range(2):
        for one in outlooks:
            load.predict(TASK, plan, one)
    return Counted.made


def test_for_as_many_pipelines_as_tasks_may_wait_it_is_worked_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipelines = MAX_WAITING_TASKS
    assert worked_out(monkeypatch, pipelines=pipelines, nodes=1) == pipelines


def test_for_more_nodes_than_are_remembered_it_is_worked_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_EXPECTED_NODES", 30, raising=False)
    assert worked_out(monkeypatch, pipelines=3, nodes=10) == 3
    assert worked_out(monkeypatch, pipelines=4, nodes=10) == 8
    assert worked_out(monkeypatch, pipelines=1, nodes=40) == 1
