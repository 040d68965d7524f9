"""Tasks while there is more work than slots: begun, kept waiting, refused, given back."""

import asyncio
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.core.scheduling.backlog import ENOUGH_FINISHED, Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.load_prediction import UNLOADED, Prediction, Verdict
from hocket.coordinator.dispatch.workload import UNCONFIRMED_FOR_MS, Load
from hocket.coordinator.intake import admission_queue as module
from hocket.coordinator.intake.admission_queue import Candidate, Overload
from hocket.coordinator.intake.waiting_inputs import PLACE_BYTES
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.kit.process import clock
from hocket.schemas.errors import ErrorInfo, PayloadTooLarge
from hocket.schemas.messages import Priority, RunAccepted, RunOrigin
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

STEP = {"type": "python", "handler": "m:f", "expect": {"mean_ms": 1_000}}
PLANS = {
    policy: compile_pipeline({"pipeline": "p", "nodes": {"a": STEP}} | extra)
    for policy, extra in {
        "default": {},
        "admit": {"on_overload": "admit"},
        "reject": {"on_overload": "reject"},
    }.items()
}


class Rig:
    """One slot, steps of a second, and what became of tasks."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.begun: list[str] = []
        self.probes: list[bool] = []
        self.refused: dict[str, ErrorInfo] = {}
        self.told: list[tuple[str, bytes]] = []
        self.begun_as: dict[str, RunAccepted] = {}
        self.fails: set[str] = set()
        """Runs whose tasks cannot be posted."""
        self.backlog = Backlog()
        gate = Gate()
        gate.types.announced("w", {"python": 1}, 0.0)
        for _ in range(ENOUGH_FINISHED):
            self.backlog.finished("nobody", "python", 1_000.0, 1_000.0, tenant="t")
        bus: Any = SimpleNamespace(
            publish_nowait=lambda *said: self.told.append(said), wait_for_capacity=self._room
        )
        store: Any = None
        self.durations = Durations(store)
        self.load = Load(self.backlog, gate)
        self.registry = CollectorRegistry()
        self.overload = Overload(
            bus,
            self.durations,
            self.load,
            CoordinatorMetrics(self.registry),
            post=self._post,
        )

    async def _room(self) -> None:
        return

    def _post(self, candidate: Candidate, refused: ErrorInfo | None) -> None:
        if candidate.accepted.run_id in self.fails:
            raise PayloadTooLarge(size_bytes=2, limit_bytes=1)
        if refused is None:
            self.begun.append(candidate.accepted.run_id)
            self.begun_as[candidate.accepted.run_id] = candidate.accepted
            self.probes.append(candidate.accepted.probe)
        else:
            self.refused[candidate.accepted.run_id] = refused

    def take(
        self, run_id: str, *, left_ms: float = 5_500, plan: str | Plan = "default", **more: Any
    ) -> None:
        fields: dict[str, Any] = {
            "run_id": run_id,
            "tenant": "t",
            "pipeline": plan if isinstance(plan, str) else run_id,
            "version": 1,
            "input": {},
            "priority": Priority.STANDARD,
            "deadline_at_ms": self.now_s * 1000 + left_ms,
            "task_ack": ack(run_id),
        }
        event = RunAccepted.model_validate(fields | more)
        found = PLANS[plan] if isinstance(plan, str) else plan
        self.overload.take(Candidate(event, 0, found, f"{run_id}:accepted"))

    def end(self, run_id: str) -> None:
        self.load.ended(run_id)

    def waits(self, run_id: str) -> bool:
        """Tell whether a task waits."""
        return self.overload.waiting(run_id) is not None

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.overload.look_again()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    with clock.source(lambda: rig.now_s, lambda: rig.now_s):
        yield rig


def ack(task: str, delivered: int = 1) -> str:
    """Return the ack subject of a task's delivery."""
    seq = int.from_bytes(task.encode())
    return f"$JS.ACK.TASKS.intake.{delivered}.{seq}.{seq + delivered}.1000000.0"


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def test_tasks_are_begun_while_they_can_make_their_deadlines_and_then_wait(rig: Rig) -> None:
    for name in names("r", 8):
        rig.take(name)
    # five seconds and a half hold the work of four before and the task's own second
    assert rig.begun == names("r", 5)
    assert not rig.refused


def test_a_waiting_task_begins_when_enough_has_ended(rig: Rig) -> None:
    for name in names("r", 7):
        rig.take(name)
    rig.end("r0")
    rig.end("r1")
    rig.passes(0.2)
    assert rig.begun == names("r", 7)


def test_a_waiting_task_is_refused_when_its_deadline_is_lost(rig: Rig) -> None:
    for name in names("r", 6):
        rig.take(name)
    rig.passes(4.4)
    assert not rig.refused
    rig.passes(0.2)
    assert list(rig.refused) == ["r5"]
    assert rig.refused["r5"].code == "deadline_unreachable"


def test_interactive_tasks_are_refused_at_once_and_what_the_pipeline_says_counts(rig: Rig) -> None:
    for name in names("r", 5):
        rig.take(name, priority=Priority.INTERACTIVE)
    rig.take("late", priority=Priority.INTERACTIVE)
    rig.take("refusing", plan="reject")
    rig.take("hoping", plan="admit", priority=Priority.INTERACTIVE)
    assert sorted(rig.refused) == ["late", "refusing"]
    assert "hoping" in rig.begun
    assert rig.refused["late"].details["retry_after_ms"] > 0


def test_the_more_urgent_of_the_waiting_begins_first(rig: Rig) -> None:
    for name in names("r", 9):
        rig.take(name, left_ms=9_500)
    rig.take("later", left_ms=9_400)
    rig.take("sooner", left_ms=8_400)
    rig.end("r0")
    rig.passes(0.1)
    assert rig.begun[9:10] == ["sooner"]


def test_a_higher_class_begins_before_a_lower_one_that_waits(rig: Rig) -> None:
    for name in names("r", 5):
        rig.take(name)
    rig.take("batch", priority=Priority.BATCH)
    rig.take("standard")
    for name in ("r0", "r1"):
        rig.end(name)
    rig.passes(0.1)
    assert rig.begun[5:] == ["standard", "batch"]


def test_how_many_wait_is_bounded_per_tenant(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_PER_TENANT", 2)
    for name in names("r", 8):
        rig.take(name)
    assert list(rig.refused) == ["r7"]
    assert rig.refused["r7"].code == "too_many_tasks_wait"
    rig.end("r0")
    rig.passes(0.1)
    rig.take("next")
    assert "next" not in rig.refused


def test_tenants_that_have_taken_all_places_make_room_for_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_TASKS", 6)

    def comes(tenant: str, number: int) -> str:
        """A task of a tenant that is not begun at once comes in."""
        run_id = f"{tenant}{number}"
        for again in range(20):
            rig.take(f"{run_id}.{again}", tenant=tenant)
            if f"{run_id}.{again}" not in rig.begun:
                return f"{run_id}.{again}"
        raise AssertionError(rig.begun)

    waiting = [
        comes(tenant, number)
        for tenant, tasks in (("a", 3), ("b", 3), ("c", 2))
        for number in range(tasks)
    ]
    assert all(map(rig.waits, waiting[-2:]))
    assert sorted(name[:1] for name in rig.refused) == ["a", "b"]
    assert {error.code for error in rig.refused.values()} == {"too_many_tasks_wait"}
    assert comes("c", 3) in rig.refused, "each has two now"
    assert sum(map(rig.waits, waiting)) == 6
    rig.passes(5.5)
    assert not set(rig.begun) & set(rig.refused)
    assert set(waiting) <= {*rig.begun, *rig.refused}


def test_a_large_task_takes_several_places(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_PER_TENANT", 12)
    large = {"text": "x" * (4 * PLACE_BYTES)}
    for name in names("r", 5):
        rig.take(name)
    begun = len(rig.begun)
    for name in names("large", 3):
        rig.take(name, input=large)
    rig.take("small")
    assert list(rig.refused) == ["large2"]
    assert rig.waits("small")
    for name in rig.begun[:begun]:
        rig.end(name)
    rig.passes(0.1)
    assert rig.begun_as["large0"].input == large


def test_the_larger_tasks_of_one_tenant_make_room_for_small_ones_of_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_TASKS", 12)
    monkeypatch.setattr(rig.overload, "_judge", lambda _candidate: (Verdict.QUEUE, UNLOADED))
    for name in names("large", 2):
        rig.take(name, input={"text": "x" * (4 * PLACE_BYTES)}, tenant="a")
    for name in names("small", 4):
        rig.take(name, tenant="b")
    assert not rig.begun
    assert list(rig.refused) == ["large1"]
    assert all(map(rig.waits, ["large0", *names("small", 4)]))


def test_what_waits_holds_its_inputs_as_text(rig: Rig) -> None:
    given = {"numbers": [1.5, -0.0, 1e20, 2**70, None, "\u00e9"]}
    origin = {"run_id": "r0", "operation": "rerun", "from_step": "a", "step_input": {"b": [1]}}
    for name in names("r", 5):
        rig.take(name)
    rig.take("waits", input=given, origin=origin)
    waiting = rig.overload.waiting("waits")
    assert waiting is not None
    assert (waiting.input, waiting.origin and waiting.origin.step_input) == ({}, None)
    for name in tuple(rig.begun):
        rig.end(name)
    rig.passes(0.1)
    begun = rig.begun_as["waits"]
    assert begun.input == given
    assert begun.origin == RunOrigin.model_validate(origin)


class Looks:
    """Has every task wait, those of the pipeline `reject` until a tick; notes which are judged."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rig = rig
        self._judged: list[str] = []
        self._in_tick = False
        monkeypatch.setattr(rig.overload, "_judge", self._judge)

    def _judge(self, candidate: Candidate) -> tuple[Verdict, Prediction]:
        self._judged.append(candidate.accepted.run_id)
        is_fast = self._in_tick and candidate.accepted.pipeline == "reject"
        return Verdict.ADMIT if is_fast else Verdict.QUEUE, UNLOADED

    def wait(self, tenant: str, *, pipelines: int, nodes: int) -> list[str]:
        """Have tasks come whose pipelines have so many nodes: each has another one."""
        plan = compile_pipeline({"pipeline": "p", "nodes": {f"a{n}": STEP for n in range(nodes)}})
        waiting = names(tenant, pipelines)
        for number, run_id in enumerate(waiting):
            self._rig.take(run_id, plan=plan, tenant=tenant, left_ms=9e6 + number)
        return waiting

    def of_tick(self) -> list[str]:
        self._judged.clear()
        self._in_tick = True
        self._rig.passes(0.1)
        self._in_tick = False
        return list(self._judged)


def test_a_tick_does_a_bounded_amount_of_work_and_the_next_ones_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(rig, monkeypatch)
    waiting = looks.wait("many", pipelines=45, nodes=200)
    ticks = [looks.of_tick() for _ in range(6)]
    assert [len(tick) for tick in ticks] == [10, 10, 10, 10, 5, 10]
    assert [run_id for tick in ticks[:5] for run_id in tick] == waiting
    assert ticks[5] == waiting[:10]


def test_tenants_with_too_many_pipelines_for_a_tick_delay_mainly_themselves(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(rig, monkeypatch)
    for tenant in ("many", "more"):
        looks.wait(tenant, pipelines=40, nodes=200)
    few = looks.wait("few", pipelines=2, nodes=1)
    ticks = [set(few) <= set(looks.of_tick()) for _ in range(12)]
    assert all(one or other for one, other in itertools.pairwise(ticks))


def test_a_pipeline_whose_tasks_come_and_begin_all_the_time_delays_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(rig, monkeypatch)
    (slow,) = looks.wait("t", pipelines=1, nodes=1)
    for number in range(3):
        rig.take(f"fast{number}", plan="reject")
        assert rig.waits(f"fast{number}")
        assert slow in looks.of_tick()
        assert f"fast{number}" in rig.begun


def test_a_waiting_task_that_is_delivered_again_keeps_its_deadline_and_is_begun_once(
    rig: Rig,
) -> None:
    for name in names("r", 6):
        rig.take(name)
    rig.now_s += 3
    rig.take("r5", left_ms=60_000, task_ack=ack("r5", 2))
    rig.passes(1.6)
    assert list(rig.refused) == ["r5"]
    assert "r5" not in rig.begun


def test_a_waiting_task_that_is_delivered_again_is_acknowledged_by_its_newer_delivery(
    rig: Rig,
) -> None:
    for name in names("r", 6):
        rig.take(name, input={"text": "first"})
    newer = ack("r5", 2)
    rig.take("r5", task_ack=newer, checked_at_ms=5.0, version=2, input={"text": "first"})
    rig.end("r0")
    rig.passes(0.1)
    begun = rig.begun_as["r5"]
    assert (begun.task_ack, begun.checked_at_ms, begun.version) == (newer, 5.0, 1)


def test_a_task_that_was_begun_and_never_ran_is_not_counted_for_ever(rig: Rig) -> None:
    rig.take("r0")
    assert rig.backlog.runs_with("python") == 1
    rig.now_s += UNCONFIRMED_FOR_MS / 1000
    rig.load.tick()
    assert rig.backlog.runs_with("python") == 0


@pytest.mark.parametrize("ended", [5, 0])
async def test_a_waiting_task_that_cannot_be_posted_delays_no_other(rig: Rig, ended: int) -> None:
    for name in names("r", 5):
        rig.take(name)
    waiting = names("w", 3)
    rig.take(waiting[0])
    rig.take("big", left_ms=5_400)
    for name in waiting[1:]:
        rig.take(name, tenant="other")
    rig.fails.add("big")
    for name in names("r", ended):  # begun if anything has ended, refused otherwise
        rig.end(name)
    for _ in range(7):
        rig.passes(1.0)
    assert {*rig.begun[5:], *rig.refused} == set(waiting)
    assert not any(map(rig.waits, [*waiting, "big"])), "it is delivered again"
    rig.passes(1.0)


async def test_a_process_that_ends_gives_its_waiting_tasks_back(rig: Rig) -> None:
    for name in names("r", 6):
        rig.take(name)
    running = asyncio.create_task(rig.overload.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert rig.told == [(ack("r5"), b"-NAK")]


def test_of_runs_that_are_given_up_one_in_twenty_is_a_probe(rig: Rig) -> None:
    probes = []
    for number in range(45):
        rig.durations.gave_up("t", "default")
        rig.take(f"r{number}", left_ms=1e9)
        probes.append(rig.probes[-1])
    assert [number for number, probe in enumerate(probes) if probe] == [19, 39]
