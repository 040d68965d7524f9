"""Runs that cannot go on: an event that no rule can apply, rows that Postgres refuses, or a run
that cannot be read back. Such a run ends with that error and is kept as a dead letter, and the
others go on (docs/explanation/isolation.md)."""

from functools import partial

import structlog

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.ends.aborting import aborted, altered, closed, withdrawn_again
from hocket.coordinator.core.run.faults import RunNotRestorable, RunNotStorable, reason_of
from hocket.coordinator.core.run.state.messages import EndRun
from hocket.coordinator.core.run.state.restore import StoredRun, readable
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.storage.pending_changes import Ended
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats import dead_letters
from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import ErrorInfo

log = structlog.get_logger(__name__)


class FailedRuns:
    """Ends the failed runs of one partition in one tenure."""

    def __init__(
        self, context: TenureContext, executor: CommandExecutor, recorder: DecisionRecorder
    ) -> None:
        self._services = context.services
        self._runs = context.runs
        self._notifier = context.notifier
        self._executor = executor
        self._recorder = recorder

    def give_up(self, run: Run, error: ErrorInfo, at_ms: float, *, closes: bool = False) -> None:
        """End a run that cannot go on. `closes`: Postgres may have steps of it that are not in
        memory."""
        outcome = aborted(run, error, now_ms=at_ms)
        self._recorder.record(outcome, surely=True, closes=closes)

    def not_resumed(self, run: Run, error: Exception) -> None:
        """End a run for which the rules cannot determine what is in flight."""
        info = RunNotRestorable(run_id=run.run_id, reason=reason_of(error)).info()
        self._set_aside(run, info)
        self.give_up(run, info, now_ms(), closes=True)

    def not_restored(self, stored: StoredRun, error: Exception) -> None:
        """End a run that cannot be read back."""
        run, _ = readable(stored.row)
        info = RunNotRestorable(run_id=run.run_id, reason=reason_of(error)).info()
        self._set_aside(run, info)
        outcome = closed(run, info, now_ms=now_ms(), unread=stored.steps)
        self._recorder.record(outcome, surely=True, closes=True)

    def refused(self, run: Run, error: Exception, late: bool) -> Ended | None:
        """End a run whose rows Postgres refuses, in the state that it has reached meanwhile."""
        info = RunNotStorable(reason=reason_of(error)).info()
        self._set_aside(run, info)
        if late:
            return None
        current = self._runs.get(run.run_id)
        run = current or run
        had_ended = run.has_ended
        outcome = altered(run, info) if had_ended else aborted(run, info, now_ms=now_ms())
        assert run.finished_at_ms is not None, run.run_id
        if not had_ended:
            self._notifier.decided(run.run_id, run.finished_at_ms)
        self._services.load.ended(run.run_id)
        self._runs.put(run)
        self._runs.remember(run)
        # an exception left the run half changed: what that event had withdrawn is still out
        withdrawn = withdrawn_again(run, info.code) if current is None else ()
        for command in (*outcome.commands, *withdrawn):
            if not isinstance(command, EndRun | RecordAttempt):
                self._executor.execute_surely(command)
        return Ended(run, outcome.changed, partial(self._recorder.end_committed, run))

    def _set_aside(self, run: Run, info: ErrorInfo) -> None:
        """Count a run that is set aside, and keep a dead letter of it."""
        self._services.metrics.set_aside("run")
        try:
            dead_letters.post_run(
                self._services.bus,
                run_id=run.run_id,
                tenant=run.tenant,
                pipeline=run.pipeline,
                error=info,
                capabilities=self._services.capabilities,
            )
        except Exception:
            log.exception("dead_letter_not_kept", **of_run(run.run_id, run.traceparent))
