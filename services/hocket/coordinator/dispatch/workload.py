"""What this coordinator's runs still have to do, and what that means for a task that arrives now.

Follows the life of runs and attempts (`admitted`, `resumed`, `dispatched`, `finished`, `ended`) and
asks the gate what workers can do. Nothing here is durable or needs to be: a wrong account may delay
or admit a task by mistake, and is corrected as the runs in question end.
"""

from collections import OrderedDict
from collections.abc import Mapping

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.run import TERMINAL, Run
from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.capacity_demand import CapacityDemand
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.load_prediction import PlanPath, Prediction, predict
from hocket.coordinator.core.scheduling.planned_work import Work, work_of
from hocket.coordinator.core.scheduling.priority_queue import Ready
from hocket.coordinator.core.scheduling.type_queue import Load as TypeLoad
from hocket.coordinator.core.time.duration_estimates import DurationForecast
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas.messages import AttemptFinished, RunAccepted
from hocket.schemas.pipeline.plan import Plan

MAX_EXPECTED = 2_000
"""How many plans are remembered with what to expect of them: one for each task that may wait for
workers (`intake/admission_queue.py`)."""
MAX_EXPECTED_NODES = 60_000
"""Their nodes: more than waiting tasks are judged by in a second, after which that is outdated."""
SCALING_HORIZON_S = 60.0
"""How long it takes until a newly requested worker takes steps."""
UNCONFIRMED_FOR_MS = 30_000.0
"""A run that was admitted and has not begun after this time is no longer counted."""


class Load:
    """What the gate and the backlog of this coordinator hold together. `scaling_horizon_s`: the
    time until a newly requested worker takes steps."""

    def __init__(
        self, backlog: Backlog, gate: Gate, *, scaling_horizon_s: float = SCALING_HORIZON_S
    ) -> None:
        self._backlog = backlog
        self._gate = gate
        self._demand = CapacityDemand(1_000 * scaling_horizon_s)
        self._expected: OrderedDict[int, _Expected] = OrderedDict()
        """By the identity of the outlook, which is kept alive with it."""
        self._expected_nodes = 0
        self._unconfirmed: OrderedDict[str, float] = OrderedDict()

    # ---- runs -------------------------------------------------------------------------------

    def admitted(
        self, event: RunAccepted, partition: int, plan: Plan, outlook: DurationForecast
    ) -> None:
        """Count a run from its admission on, a moment before it begins."""
        if event.run_id not in self._backlog:
            self._unconfirmed[event.run_id] = now_ms()
            self._arrived(event, plan, outlook)
            self._promise(event, partition, event.deadline_at_ms, self._of(plan, outlook).work)

    def begun(self, run: Run, plan: Plan, outlook: DurationForecast) -> None:
        """Count a run that has begun."""
        self._unconfirmed.pop(run.run_id, None)
        if run.run_id not in self._backlog:
            self._arrived(run, plan, outlook)
        work = self._of(plan, outlook).work
        self._promise(run, run.owner.partition, run.deadline_at_ms, work)

    def resumed(self, run: Run, plan: Plan, outlook: DurationForecast) -> None:
        """Count what is left of a run that another owner began."""
        if run.run_id in self._backlog:
            return
        work = self._of(plan, outlook).work
        self._promise(run, run.owner.partition, run.deadline_seen_at_ms(now_ms()), work)
        self._subtract(run, work, outlook)
        if not work.behind:
            return
        for step in run.steps.values():
            behind = self._backlog.reached(run.run_id, step.node.path)
            if behind is not None:
                self._subtract(run, behind, outlook)

    def ended(self, run_id: str) -> None:
        """Stop counting a run."""
        self._backlog.forget(run_id)

    def lost(self, partition: int) -> None:
        """Stop counting the runs of a partition."""
        self._backlog.forget_partition(partition)

    def tick(self) -> None:
        """Forget admitted runs that never began, and update the rates of arrival."""
        self._demand.tick(monotonic_ms())
        while self._unconfirmed:
            run_id, at_ms = next(iter(self._unconfirmed.items()))
            if now_ms() - at_ms < UNCONFIRMED_FOR_MS:
                return
            del self._unconfirmed[run_id]
            self._backlog.forget(run_id)

    # ---- attempts ---------------------------------------------------------------------------

    def dispatched(self, command: Dispatch) -> None:
        """Count an attempt, unless its step is already counted with its run's plan; with the first
        step behind a pause of the deadline, all that is behind it."""
        run, at_ms = command.run, command.dispatched_at_ms
        step = run.steps.get(command.step)
        deadline_at_ms = run.deadline_seen_at_ms(at_ms)
        counted = self._backlog.dispatched(
            run.run_id,
            command.step,
            command.pool,
            command.expected_ms,
            path=command.step if step is None else step.node.path,
            deadline_at_ms=deadline_at_ms,
            now_ms=at_ms,
        )
        if counted:
            self._demand.arrived(counted, deadline_at_ms - now_ms())

    def finished(self, ready: Ready, event: AttemptFinished) -> None:
        """Subtract an attempt that has ended."""
        ran_ms = max(0.0, event.finished_at_ms - event.started_at_ms) if event.started_at_ms else 0
        if event.error is not None:
            ran_ms = 0.0  # a failure says nothing about how long such steps take
        self._backlog.finished(
            ready.run_id, ready.type, ready.expected_ms, ran_ms, tenant=ready.tenant
        )

    # ---- tasks ------------------------------------------------------------------------------

    def predict(self, event: RunAccepted, plan: Plan, outlook: DurationForecast) -> Prediction:
        """Return when a task that begins now would end."""

        def clear_ms(node_type: str) -> float:
            return self._backlog.clear_ms(
                node_type,
                priority=event.priority,
                tenant=event.tenant,
                deadline_at_ms=event.deadline_at_ms,
                capacity=self._gate.types.capacity(node_type, event.priority),
            )

        return predict(self._of(plan, outlook).path, clear_ms)

    # ---- workers ----------------------------------------------------------------------------

    def slots_wanted(self, loads: Mapping[str, TypeLoad]) -> dict[str, float]:
        """Return how many slots each node type needs for this coordinator's runs."""
        at_ms = now_ms()
        return {
            node_type: self._demand.slots(
                node_type, self._backlog.left(node_type), now_ms=at_ms, out_ms=load.out_ms
            )
            for node_type, load in loads.items()
        }

    # ---- helpers ----------------------------------------------------------------------------

    def _arrived(self, run: Run | RunAccepted, plan: Plan, outlook: DurationForecast) -> None:
        work = self._of(plan, outlook).work
        self._demand.arrived(work.by_type, run.deadline_at_ms - now_ms())

    def _promise(
        self, run: Run | RunAccepted, partition: int, deadline_at_ms: float, work: Work
    ) -> None:
        self._backlog.promise(
            run.run_id,
            partition=partition,
            priority=run.priority,
            tenant=run.tenant,
            deadline_at_ms=deadline_at_ms,
            work=work,
            now_ms=now_ms(),
        )

    def _subtract(self, run: Run, work: Work, outlook: DurationForecast) -> None:
        """Subtract what a run that is read back has done of what is counted."""
        for key in work.keys:
            step = run.steps.get(key)
            if step is not None and step.state in TERMINAL:
                expected_ms = outlook[step.node.path].own.mean_ms
                pool = step.node.pool
                self._backlog.finished(run.run_id, pool, expected_ms, 0.0, tenant=run.tenant)

    def _of(self, plan: Plan, outlook: DurationForecast) -> "_Expected":
        found = self._expected.get(id(outlook))
        if found is None:
            found = self._expected[id(outlook)] = _Expected(plan, outlook)
            self._expected_nodes += found.nodes
            self._forget_expected()
        return found

    def _forget_expected(self) -> None:
        """If there is too much, forget what was made longest ago, but not the latest."""
        expected = self._expected
        while len(expected) > 1 and (
            len(expected) > MAX_EXPECTED or self._expected_nodes > MAX_EXPECTED_NODES
        ):
            _, forgotten = expected.popitem(last=False)
            self._expected_nodes -= forgotten.nodes


class _Expected:
    """What runs of a plan are expected to do, by one outlook."""

    __slots__ = ("nodes", "outlook", "path", "work")

    def __init__(self, plan: Plan, outlook: DurationForecast) -> None:
        self.outlook = outlook
        self.nodes = len(plan.by_path)
        self.work: Work = work_of(plan, outlook)
        self.path = PlanPath(plan, outlook)
