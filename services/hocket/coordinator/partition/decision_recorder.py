"""Keeping a decision, and doing what it asks for: at once, or after the commit that holds it.

Commands are carried out without waiting for the database. What must come after the commit (a run's end,
steps with effects outside) is handed to the tenure.
"""

from functools import partial

from hocket.coordinator.core.run.commands import Command, Dispatch, EndRun, RecordAttempt
from hocket.coordinator.core.run.decide import Decision
from hocket.coordinator.core.run.feasibility import was_given_up
from hocket.coordinator.core.run.state import Run, StepState
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.runs.run_notifier import RunNotifier
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.tenure import Tenure
from hocket.schemas.messages import RunFinished, StepRequested


class DecisionRecorder:
    """That of one partition in one tenure."""

    def __init__(
        self,
        services: SharedServices,
        *,
        tenure: Tenure,
        runs: Runs,
        notifier: RunNotifier,
        executor: CommandExecutor,
    ) -> None:
        self._load = services.load
        self._durations = services.durations
        self._metrics = services.metrics
        self._tenure = tenure
        self._runs = runs
        self._notifier = notifier
        self._executor = executor

    def record(
        self, before: Run | None, decision: Decision, *, surely: bool = False, closes: bool = False
    ) -> None:
        """Keep a decision and do what it asks for; `surely`: where something of that fails, the rest is
        done all the same. `closes`: Postgres may have steps of the run that are not here."""
        run = decision.run
        if run.ended:
            self._load.ended(run.run_id)
            if was_given_up(run):
                self._durations.gave_up(run.tenant, run.pipeline)
        self._runs.put(run)
        # first of all it is kept: what fails below finds the run as it is now
        self._keep(before, decision, closes=closes)
        for command in decision.commands:
            if isinstance(command, EndRun):
                self._notifier.decided(run.run_id, command.finished.finished_at_ms)
                ended = partial(self.end_committed, run, command.finished)
                self._tenure.after_commit(ended, run_id=run.run_id, urgent=True)
            elif not isinstance(command, RecordAttempt):
                self._carry_out(run, command, surely=surely)

    def carry_out_again(self, run: Run, commands: tuple[Command, ...]) -> None:
        """Do what is in flight of a run anew, as far as it was decided and may not be done."""
        for command in commands:
            self._carry_out(run, command, surely=True)

    def end_committed(self, run: Run, finished: RunFinished) -> None:
        """Tell an end that Postgres has now."""
        duration_ms = finished.finished_at_ms - finished.accepted_at_ms
        late = finished.finished_at_ms > run.deadline_at_ms
        self._metrics.ended(finished.status, run.priority, duration_ms, late=late)
        self._notifier.committed(run, finished)

    def _keep(self, before: Run | None, decision: Decision, *, closes: bool) -> None:
        run = decision.run
        attempts = [c for c in decision.commands if isinstance(c, RecordAttempt)]
        if not (decision.changed or decision.run_changed or attempts):
            return
        marked = run.run_id in self._runs.marked
        self._runs.marked.discard(run.run_id)
        self._tenure.add(
            run,
            changed=decision.changed,
            run_changed=decision.run_changed or marked,
            first=before is None,
            attempts=attempts,
            urgent=any(map(has_effects, decision.commands)),
            closes=closes,
            size_bytes=run.size_bytes - (0 if before is None else before.size_bytes),
        )

    def _carry_out(self, run: Run, command: Command, *, surely: bool) -> None:
        if has_effects(command):
            action = partial(self._execute_committed, command)
            self._tenure.after_commit(action, run_id=run.run_id, urgent=True)
        elif surely:
            self._executor.execute_surely(command)
        else:
            self._executor.execute(command)

    def _execute_committed(self, command: Command) -> None:
        """Carry out what waited for its commit, unless the run has gone on without it by now."""
        if isinstance(command, Dispatch) and not self._wants(command.request):
            return
        self._executor.execute(command)

    def _wants(self, request: StepRequested) -> bool:
        run = self._runs.in_flight.get(request.run_id)
        step = None if run is None else run.steps.get(request.step)
        wanted = (StepState.DISPATCHED, request.attempt)
        return step is not None and (step.state, step.attempt) == wanted


def has_effects(command: Command) -> bool:
    """Tell whether a command must wait for its commit: what it does outside cannot be taken back."""
    return isinstance(command, Dispatch) and command.request.effects_external
