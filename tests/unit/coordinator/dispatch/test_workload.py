"""What tasks are judged by is worked out once, and remembered within bounds. Work behind an
approval counts once it is approved."""

from collections.abc import Iterator
from typing import Any

import pytest

from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.type_queue import Load as TypeLoad
from hocket.coordinator.core.time.duration_estimates import DurationForecast, outlook
from hocket.coordinator.dispatch import workload as module
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.admission_queue import MAX_WAITING_TASKS
from hocket.kit.process import clock
from hocket.schemas.messages import Priority, RunAccepted, SignalReceived
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from support.run_player import START_MS, Play, python

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


# ---- runs that wait for a person ---------------------------------------------------------------

MINUTE = 60_000.0
WAITING: dict[str, Any] = {
    "a": python(expect={"mean_ms": 10}),
    "look": {"type": "approval", "prompt": "May it?", "needs": ["a"]},
    "b": python(needs=["look"], expect={"mean_ms": 20_000}),
    "c": python(needs=["b"], expect={"mean_ms": 40_000}),
}


class Counting:
    """What is counted of one run that waits for an approval."""

    def __init__(self, nodes: dict[str, Any] = WAITING) -> None:
        self.play = Play(nodes, spec={"slo_ms": 10_000})
        self.backlog = Backlog()
        self.load = Load(self.backlog, Gate(), scaling_horizon_s=1.0)

    def begins(self) -> None:
        self.load.begun(self.play.run, self.play.plan, self.play.outlook)
        self._hand_out()

    def is_read_back(self) -> None:
        """Let another owner go on with the run."""
        self.load = Load(self.backlog, Gate(), scaling_horizon_s=1.0)
        self.backlog.forget_partition(self.play.run.owner.partition)
        self.load.resumed(self.play.read_back(), self.play.plan, self.play.outlook)

    def finish(self, key: str) -> None:
        self.play.finish(key)
        self._hand_out()

    def approve(self) -> None:
        event = SignalReceived(
            run_id="r1", signal_id="s", name="look", payload={"approved": True}, by="me"
        )
        self.play.send(event)
        self._hand_out()

    def left(self) -> dict[int, float]:
        return dict(self.backlog.left("python").due_ms)

    def slots(self) -> float:
        return self.load.slots_wanted({"python": TypeLoad(0, 0, 0, None, 0.0)})["python"]

    def _hand_out(self) -> None:
        for command in self.play.dispatched:
            self.load.dispatched(command)


@pytest.fixture
def counting(request: pytest.FixtureRequest) -> Iterator[Counting]:
    counting = Counting(getattr(request, "param", WAITING))
    with clock.source(lambda: counting.play.now_ms / 1_000, lambda: counting.play.now_ms / 1_000):
        yield counting


def test_what_is_behind_an_approval_counts_once_it_is_approved(counting: Counting) -> None:
    counting.begins()
    assert sum(counting.left().values()) == pytest.approx(10)
    wanted = counting.slots()
    counting.finish("a")
    counting.play.now_ms += MINUTE
    counting.approve()
    due_s = counting.play.run.deadline_at_ms / 1_000
    assert due_s > (START_MS + MINUTE) / 1_000
    [(second, work_ms)] = counting.left().items()
    assert (due_s - 2 < second <= due_s, work_ms) == (True, pytest.approx(10 + 60_000))
    assert counting.slots() > 5 > wanted


def test_a_run_that_is_read_back_while_it_waits_counts_nothing(counting: Counting) -> None:
    counting.begins()
    counting.finish("a")
    counting.play.now_ms += MINUTE
    counting.is_read_back()
    assert counting.left() == {}
    counting.approve()
    [(second, work_ms)] = counting.left().items()
    assert second * 1_000 > START_MS + MINUTE
    assert work_ms == pytest.approx(60_000)


def test_a_run_that_is_read_back_behind_its_approval_counts_what_is_left(
    counting: Counting,
) -> None:
    counting.begins()
    counting.finish("a")
    counting.approve()
    counting.finish("b")
    counting.is_read_back()
    assert sum(counting.left().values()) == pytest.approx(40_000)


SUBRUN = {"type": "pipeline", "pipeline": "q", "needs": ["look"]}
GRAPH = {"type": "graph", "nodes": {"x": python(expect={"mean_ms": 10})}, "needs": ["look"]}


def first_behind_approval(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "look": {"type": "approval", "prompt": "May it?"},
        "f": node,
        "c": python(needs=["look", "f"], expect={"mean_ms": 40_000}),
    }


@pytest.mark.parametrize(
    ("counting", "before_ms"),
    [
        (first_behind_approval(SUBRUN), 0),
        (first_behind_approval(GRAPH | {"map": {"over": "[1, 2]"}}), 20),
    ],
    ids=["sub-run", "map"],
    indirect=["counting"],
)
def test_a_run_that_is_read_back_counts_all_behind_an_approval_where_any_node_has_begun(
    counting: Counting, before_ms: float
) -> None:
    counting.begins()
    assert counting.left() == {}
    counting.approve()
    counted_ms = 40_000 + before_ms if before_ms else 0  # a sub-run is not handed out
    assert sum(counting.left().values()) == pytest.approx(counted_ms)
    counting.is_read_back()
    assert sum(counting.left().values()) == pytest.approx(40_000)


def test_runs_that_wait_for_a_signal_without_a_pause_want_slots() -> None:
    nodes = {
        "s": {"type": "signal", "signal": "go", "wait_ms": 1_000},
        "w": python(needs=["s"], expect={"mean_ms": 10_000}),
    }
    counting = Counting(nodes)
    with clock.source(lambda: START_MS / 1_000, lambda: START_MS / 1_000):
        counting.begins()
        assert sum(counting.left().values()) == pytest.approx(10_000)
        assert counting.slots() > 0
