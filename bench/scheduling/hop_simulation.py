"""Simulate the coordinator's rules over virtual time: how a load of runs ends under one order of steps.

The rules are the product's own, unchanged: `accept` and `apply` unfold every run; the outlook derives
deadlines and slack from measured durations (updated once a second, as in the product); the gate
(`core/scheduling/gate.py`) holds and orders waiting steps. Simulated are the clock, the workers (slots
per node type, which take steps from lanes according to the worker's weights) and the latency between
them (1 ms each way).
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from hocket.coordinator.core.run.beginning import accept
from hocket.coordinator.core.run.commands import CancelAttempt, Wake
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.messages import Dispatch, EndRun
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.lanes import lane_of
from hocket.coordinator.core.scheduling.node_types import Order
from hocket.coordinator.core.scheduling.priority_queue import Ready
from hocket.coordinator.core.time.duration_estimates import Estimate, observe
from hocket.coordinator.core.time.pipeline_forecasts import PipelineForecasts
from hocket.schemas.ids import attempt_id
from hocket.schemas.messages import (
    AttemptFinished,
    Priority,
    RunAccepted,
    RunEvent,
    StepRequested,
    TimerFired,
)
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.subjects import LANES
from hocket.workers.runtime.transport.lanes import WEIGHTS

EPOCH_MS = 1_700_000_000_000.0
WAY_MS = 1.0
TICK_MS = 250.0
OUTLOOKS_EVERY_MS = 1_000.0
TENANT = "default"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the load: its arrival, its deadline relative to that, and the durations of its steps by
    node name."""

    at_ms: float
    kind: str
    slo_ms: float
    took_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run; `latency_ms` counts from its task's arrival."""

    task: Task
    status: str
    latency_ms: float


@dataclass(slots=True)
class _Pool:
    """The workers of one node type, and the steps in their stream."""

    slots: int
    lanes: dict[str, deque[StepRequested]] = field(
        default_factory=lambda: {name: deque() for name in LANES}
    )
    turns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LANES, 0))
    running: set[str] = field(default_factory=set)

    def next_step(self) -> StepRequested | None:
        waiting = [name for name in LANES if self.lanes[name]]
        if not waiting or len(self.running) >= self.slots:
            return None
        for name in waiting:
            self.turns[name] += WEIGHTS[name]
        chosen = max(waiting, key=lambda name: self.turns[name])
        self.turns[chosen] -= sum(WEIGHTS[name] for name in waiting)
        return self.lanes[chosen].popleft()


class Simulation:
    """Plays runs through the gate.

    `slots`: the workers' slots by node type. `enforced`: whether a run ends at its deadline, as in the
    product, or continues beyond it."""

    def __init__(
        self, plan: Plan, slots: Mapping[str, int], *, order: Order, enforced: bool
    ) -> None:
        self._plan = PipelinePlan(plan)
        self._pipeline = plan.pipeline.pipeline
        self._owner = Owner(0, 1, None)
        self._slots = dict(slots)
        self._by_slack = order == "slack"
        self._enforced = enforced
        self._gate = Gate(order=order)
        self._pools = {name: _Pool(number) for name, number in slots.items()}
        self._forecasts = PipelineForecasts()
        self._measured: dict[str, Estimate] = {}
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, Task] = {}
        self._cancelled: set[str] = set()
        self._ended: list[Ended] = []
        self._now_ms = EPOCH_MS
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.busy_ms = dict.fromkeys(slots, 0.0)
        """Slot time used, by node type."""

    def play(self, tasks: Sequence[Task]) -> list[Ended]:
        """Return the ends of all runs of a load, in order."""
        for number, task in enumerate(tasks):
            run_id = f"r{number}"
            self._tasks[run_id] = task
            self._at(EPOCH_MS + task.at_ms, partial(self._accept, run_id))
        self._tick()
        self._tell_durations()
        while len(self._ended) < len(tasks):
            self._now_ms, _, action = heapq.heappop(self._agenda)
            action()
        return self._ended

    # ---- the coordinator --------------------------------------------------------------------

    def _accept(self, run_id: str) -> None:
        task = self._tasks[run_id]
        event = RunAccepted(
            run_id=run_id,
            tenant=TENANT,
            pipeline=self._pipeline,
            version=1,
            input={name: took_ms / 1_000 for name, took_ms in task.took_ms.items()},
            priority=Priority.STANDARD,
            deadline_at_ms=self._now_ms + task.slo_ms,
        )
        self._carry_out(
            accept(
                event,
                self._plan,
                self._owner,
                now_ms=self._now_ms,
                forecast=self._forecast(),
            )
        )

    def _apply(self, event: RunEvent) -> None:
        if isinstance(event, AttemptFinished):
            self._gate.finished(attempt_id(event.run_id, event.step, event.attempt))
            self._measure(event)
        run = self._runs.get(event.run_id)
        if run is not None:
            self._carry_out(apply(run, event, self._now_ms, self._forecast()))
        self._release()

    def _carry_out(self, outcome: Outcome) -> None:
        run = outcome.run
        self._runs[run.run_id] = run
        for step in outcome.changed:
            step.is_changed = False
        for command in outcome.commands:
            if isinstance(command, Dispatch):
                self._dispatch(command)
            elif isinstance(command, CancelAttempt):
                name = attempt_id(command.run_id, command.step, command.attempt)
                if self._gate.cancel(name, self._now_ms):
                    self._later(WAY_MS, partial(self._stop, name))
            elif isinstance(command, Wake):
                if self._enforced:
                    event = TimerFired(run_id=command.run_id, due_at_ms=command.at_ms)
                    self._at(max(command.at_ms, self._now_ms), partial(self._apply, event))
            elif isinstance(command, EndRun):
                del self._runs[run.run_id]
                task = self._tasks[run.run_id]
                latency_ms = self._now_ms - EPOCH_MS - task.at_ms
                self._ended.append(Ended(task, run.status, latency_ms))

    def _dispatch(self, command: Dispatch) -> None:
        request = StepRequested.model_validate_json(command.body(command.slack_ms, 0.0))
        ready = Ready(
            attempt_id=attempt_id(request.run_id, request.step, request.attempt),
            type=command.pool,
            run_id=request.run_id,
            tenant=request.tenant,
            priority=request.priority,
            partition=0,
            latest_start_at_ms=command.latest_start_at_ms,
            latest_feasible_start_at_ms=command.latest_feasible_start_at_ms,
            expected_ms=command.expected_ms,
            join_left=command.join_left,
            item=request,
        )
        if self._gate.offer(ready):
            self._publish(request, request.slack_ms)

    def _release(self) -> None:
        for ready in self._gate.release(self._now_ms):
            self._publish(ready.item, ready.latest_start_at_ms - self._now_ms)

    def _publish(self, request: StepRequested, slack_ms: float) -> None:
        lane = lane_of(request.priority, slack_ms if self._by_slack else float("inf"))
        self._later(WAY_MS, partial(self._arrive, request, lane))

    def _tick(self) -> None:
        self._gate.types.announced("worker", self._slots, self._now_ms)
        self._gate.types.hears_again(self._now_ms)
        self._gate.tick(self._now_ms)
        self._release()
        self._later(TICK_MS, self._tick)

    # ---- durations --------------------------------------------------------------------------

    def _forecast(self) -> PlanForecast:
        return self._forecasts.of(TENANT, self._pipeline, 1, self._plan)

    def _measure(self, event: AttemptFinished) -> None:
        if event.error is None:
            took_ms = event.finished_at_ms - event.started_at_ms
            self._measured[event.step] = observe(self._measured.get(event.step), took_ms)

    def _tell_durations(self) -> None:
        event = self._forecasts.news(TENANT, self._pipeline, self._measured)
        if event is not None:
            self._forecasts.change(event)
        self._later(OUTLOOKS_EVERY_MS, self._tell_durations)

    # ---- workers ----------------------------------------------------------------------------

    def _arrive(self, request: StepRequested, lane: str) -> None:
        pool = self._pools[request.type]
        pool.lanes[lane].append(request)
        self._take_steps(pool)

    def _take_steps(self, pool: _Pool) -> None:
        while (request := pool.next_step()) is not None:
            name = attempt_id(request.run_id, request.step, request.attempt)
            if name in self._cancelled:
                self._cancelled.discard(name)
                self._later(WAY_MS, partial(self._gate_finished, name))
                continue
            pool.running.add(name)
            took_ms = self._tasks[request.run_id].took_ms[request.node]
            finished = AttemptFinished(
                run_id=request.run_id,
                step=request.step,
                attempt=request.attempt,
                worker="worker",
                started_at_ms=self._now_ms,
                finished_at_ms=self._now_ms + took_ms,
            )
            self._later(took_ms, partial(self._finish, pool, request.type, name, finished))

    def _finish(self, pool: _Pool, kind: str, name: str, finished: AttemptFinished) -> None:
        if name in pool.running:  # otherwise it was stopped
            pool.running.discard(name)
            self.busy_ms[kind] += finished.finished_at_ms - finished.started_at_ms
            self._later(WAY_MS, partial(self._apply, finished))
            self._take_steps(pool)

    def _stop(self, name: str) -> None:
        for pool in self._pools.values():
            if name in pool.running:
                pool.running.discard(name)
                self._later(WAY_MS, partial(self._gate_finished, name))
                self._take_steps(pool)
                return
        self._cancelled.add(name)

    def _gate_finished(self, name: str) -> None:
        self._gate.finished(name)
        self._release()

    # ---- time -------------------------------------------------------------------------------

    def _later(self, wait_ms: float, action: Callable[[], None]) -> None:
        self._at(self._now_ms + wait_ms, action)

    def _at(self, at_ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at_ms, next(self._numbers), action))
