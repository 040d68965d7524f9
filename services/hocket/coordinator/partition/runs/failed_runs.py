"""Runs that cannot go on: an event that no rule can apply, rows that Postgres refuses, one that cannot
be read back. Such a run ends with that error, is kept as a dead letter, and the others go on
(docs/explanation/isolation.md)."""

from functools import partial

import structlog
from immutables import Map

from hocket.coordinator.core.run.aborting import (
    RunNotRestorable,
    RunNotStorable,
    aborted,
    altered,
    reason_of,
)
from hocket.coordinator.core.run.commands import EndRun, RecordAttempt
from hocket.coordinator.core.run.decide import Decision
from hocket.coordinator.core.run.ending import finished_of
from hocket.coordinator.core.run.state import Run, Step
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.runs.run_notifier import RunNotifier
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.pending_changes import Ended
from hocket.kit.nats import dead_letters
from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import ErrorInfo

log = structlog.get_logger(__name__)


class FailedRuns:
    """Ends those of one partition in one tenure, of this epoch."""

    def __init__(
        self,
        services: SharedServices,
        *,
        epoch: int,
        runs: Runs,
        notifier: RunNotifier,
        executor: CommandExecutor,
        recorder: DecisionRecorder,
    ) -> None:
        self._services = services
        self._epoch = epoch
        self._runs = runs
        self._notifier = notifier
        self._executor = executor
        self._recorder = recorder

    def give_up(self, run: Run, error: ErrorInfo, at_ms: float, *, closes: bool = False) -> None:
        """End a run that cannot go on. `closes`: Postgres may have steps of it that are not here."""
        decision = self._aborted(run, error, at_ms)
        self._recorder.record(run, decision, surely=True, closes=closes)

    def not_restored(self, run: Run, steps: list[Step], error: Exception) -> None:
        """End a run that cannot be read back, or whose rules cannot say what is in flight of it."""
        info = RunNotRestorable(run_id=run.run_id, reason=reason_of(error)).info()
        self._set_aside(run, info)
        known = replace(run, steps=Map({step.key: step for step in steps}))
        self.give_up(known, info, now_ms(), closes=True)

    def refused(self, run: Run, error: Exception, late: bool) -> Ended | None:
        """End a run whose rows Postgres refuses, as far as it came meanwhile."""
        info = RunNotStorable(reason=reason_of(error)).info()
        self._set_aside(run, info)
        if late:
            return None
        run = self._runs.get(run.run_id) or run
        decision = altered(run, info) if run.ended else self._aborted(run, info, now_ms())
        ended, finished = decision.run, finished_of(decision.run)
        if not run.ended:
            self._notifier.decided(ended.run_id, finished.finished_at_ms)
        self._services.load.ended(ended.run_id)
        self._runs.put(ended)
        self._runs.remember(ended)
        for command in decision.commands:
            if not isinstance(command, EndRun | RecordAttempt):
                self._executor.execute_surely(command)
        follows = partial(self._recorder.end_committed, ended, finished)
        return Ended(ended, decision.changed, follows)

    def _aborted(self, run: Run, error: ErrorInfo, at_ms: float) -> Decision:
        entry = self._services.catalog.ready(run.tenant, run.pipeline, run.version)
        plan = None if entry is None else entry.plan
        return aborted(run, error, now_ms=at_ms, plan=plan, epoch=self._epoch)

    def _set_aside(self, run: Run, info: ErrorInfo) -> None:
        """Count a run that is set aside, and keep what is known of it."""
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
            log.exception("dead_letter_not_kept", run_id=run.run_id)
