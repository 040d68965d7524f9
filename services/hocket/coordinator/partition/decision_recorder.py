"""Stores a decision, and carries out what it asks for: at once, or after the commit that holds it.

Commands are executed without waiting for the database. What must come after the commit (a run's
end, steps with effects outside) is handed to the tenure.
"""

from functools import partial

from hocket.coordinator.core.run.commands import RecordAttempt, WaitForFlow
from hocket.coordinator.core.run.infeasible import was_given_up
from hocket.coordinator.core.run.state.messages import Command, Dispatch, EndRun, TellSpending
from hocket.coordinator.core.run.state.run import DISPATCHED, RUNNING, Run
from hocket.coordinator.core.run.state.values import forget_oldest
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.runs.end_publisher import end_result
from hocket.coordinator.partition.tenure_context import TenureContext

KEPT = (RecordAttempt, WaitForFlow)
"""The commands that are carried out by what is written."""


class DecisionRecorder:
    """Records the decisions of one partition in one tenure."""

    def __init__(self, context: TenureContext, executor: CommandExecutor) -> None:
        services = context.services
        self._load = services.load
        self._durations = services.durations
        self._metrics = services.metrics
        self._tenure = context.tenure
        self._runs = context.runs
        self._notifier = context.notifier
        self._executor = executor

    def record(
        self, outcome: Outcome, *, first: bool = False, surely: bool = False, closes: bool = False
    ) -> None:
        """Store what an event did, and do what it asks for. `first`: it began the run; `surely`: if
        some of that fails, the rest is done all the same; `closes`: Postgres may have steps of the
        run that are not in memory."""
        run, commands = outcome.run, outcome.commands
        if run.status != RUNNING:
            self._load.ended(run.run_id)
            if was_given_up(run):
                self._durations.gave_up(run.tenant, run.pipeline)
        # stored first: if something below fails, the run is found as it is now
        self._keep(outcome, first=first, closes=closes)
        self._runs.put(run)
        for command in commands:
            if isinstance(command, Dispatch):
                self._carry_out(run, command, surely=surely)
            elif isinstance(command, EndRun):
                assert run.finished_at_ms is not None, run.run_id
                self._notifier.decided(run.run_id, run.finished_at_ms)
                ended = partial(self.end_committed, run)
                self._tenure.after_commit(ended, run_id=run.run_id, urgent=True)
            elif isinstance(command, TellSpending):
                tell = partial(self._tell_spending, run)
                self._tenure.after_commit(tell, run_id=run.run_id)
            elif not isinstance(command, KEPT):
                self._carry_out(run, command, surely=surely)

    def carry_out_again(self, outcome: Outcome) -> None:
        """Carry out again what was decided of a run in flight and may not have been done."""
        for command in outcome.commands:
            self._carry_out(outcome.run, command, surely=True)

    def hand_out_committed(self, run_id: str) -> None:
        """Hand out the steps that were committed while their run was being read back."""
        for command in self._runs.committed.pop(run_id, ()):
            if self._wants(command):
                self._executor.execute_surely(command)

    def end_committed(self, run: Run) -> None:
        """Announce an end that Postgres has now."""
        assert run.finished_at_ms is not None, run.run_id
        duration_ms = run.finished_at_ms - run.accepted_at_ms
        late = run.finished_at_ms > run.deadline_at_ms
        self._metrics.ended(run.status, run.priority, duration_ms, late=late)
        self._notifier.committed(run)

    def _tell_spending(self, run: Run) -> None:
        """Tell the step above an ended run what the run has spent by now."""
        assert run.parent is not None, run.run_id
        self._notifier.tell_parent(run.parent, end_result(run, run.parent, retold=True))

    def _keep(self, outcome: Outcome, *, first: bool, closes: bool) -> None:
        run, changed, run_changed = outcome.run, outcome.changed, outcome.run_changed
        attempts: list[RecordAttempt] = []
        flow: WaitForFlow | None = None
        urgent = False
        for command in outcome.commands:
            if isinstance(command, Dispatch):
                urgent = urgent or has_effects(command)
            elif isinstance(command, RecordAttempt):
                attempts.append(command)
            elif isinstance(command, WaitForFlow):
                flow, urgent = flow or command, True
        if not (changed or run_changed or attempts or outcome.spender):
            return
        marked = self._runs.marked
        if marked and run.run_id in marked:
            marked.discard(run.run_id)
            run_changed = True
        for step in changed:
            step.is_changed = False
        self._tenure.add(
            run,
            changed=changed,
            run_changed=run_changed,
            first=first,
            attempts=attempts,
            urgent=urgent,
            closes=closes,
            size_bytes=run.size_bytes - (run.counted_bytes or 0),
            flow=flow,
            spender=outcome.spender,
        )
        run.input.forget_value()
        for step in changed:
            step.let_go()
        forget_oldest()

    def _carry_out(self, run: Run, command: Command, *, surely: bool) -> None:
        if has_effects(command):
            action = partial(self._execute_committed, command)
            self._tenure.after_commit(action, run_id=run.run_id, urgent=True)
        elif surely:
            self._executor.execute_surely(command)
        else:
            self._executor.execute(command)

    def _execute_committed(self, command: Command) -> None:
        """Execute what waited for its commit, unless the run has moved on by now."""
        if isinstance(command, Dispatch):
            if command.run.run_id in self._runs.dropped:
                self._runs.committed.setdefault(command.run.run_id, []).append(command)
                return
            if not self._wants(command):
                return
        self._executor.execute(command)

    def _wants(self, dispatch: Dispatch) -> bool:
        run = self._runs.in_flight.get(dispatch.run.run_id)
        step = None if run is None else run.steps.get(dispatch.step)
        wanted = (DISPATCHED, dispatch.attempt)
        return step is not None and (step.state, step.attempt) == wanted


def has_effects(command: Command) -> bool:
    """Tell whether a command must wait for its commit, because its effects outside cannot be undone."""
    return isinstance(command, Dispatch) and command.is_external
