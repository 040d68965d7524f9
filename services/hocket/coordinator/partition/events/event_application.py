"""Applying one event: `apply` to a loaded run, the beginning of runs, and changes of the forecasts.

A run is changed in place: one that an exception left half changed is dropped first, then read back
as it was decided until then (`runs/run_loader.py`), and the event is applied once more. Of one that
has ended, what it had spent before is restored.
"""

from collections.abc import Sequence

from hocket.coordinator.core.run.ends.late import SpentBefore
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events.attempt_reports import AttemptReports
from hocket.coordinator.partition.events.pending_events import PendingEvents
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_acceptance import RunAcceptance
from hocket.coordinator.partition.runs.run_loader import RunLoader
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    LogEvent,
    OutlookChanged,
    RunAccepted,
    RunEvent,
)


class EventApplication:
    """Applies the events of one partition in one tenure."""

    def __init__(
        self,
        context: TenureContext,
        acceptance: RunAcceptance,
        loader: RunLoader,
        recorder: DecisionRecorder,
        failed: FailedRuns,
    ) -> None:
        self._reports = AttemptReports(context.services)
        self._tenure = context.tenure
        self._runs = context.runs
        self._measurements = context.measurements
        self._acknowledgement = context.acknowledgement
        self._acceptance = acceptance
        self._loader = loader
        self._recorder = recorder
        self._failed = failed
        self._pending = PendingEvents()

    async def expect(self, events: Sequence[LogEvent]) -> None:
        """Read together the runs that the events of a message are sure to need."""
        if len(events) > 1:
            runs = [event.run_id for event in events if isinstance(event, CancelRequested)]
            await self._loader.look_up(runs)
            tasks = [event for event in events if isinstance(event, RunAccepted)]
            await self._acceptance.known.look_up(tasks)

    def applied_all(self) -> None:
        """Forget what was read for the events of a message."""
        self._runs.looked_up.clear()
        self._acceptance.known.forget_looked_up()

    async def apply(self, event: LogEvent, at_ms: float) -> None:
        """Apply an event to its run, or begin the run with it; retry once, and raise what the
        second try raises."""
        if isinstance(event, RunAccepted):
            if await self._acceptance.accept(event, at_ms):
                for early in self._pending.take(event.run_id):
                    await self.apply(early, at_ms)
            return
        if isinstance(event, OutlookChanged):
            self._tenure.expects(self._measurements.change(event))
            return
        run = self._runs.get(event.run_id)
        if run is None or run.plan is None:
            if await self._is_made_up(event, run):
                return
            run = await self._loaded(event, run)
        if not self._reports.believes(event, run):
            return
        if run is None:
            if isinstance(event, AttemptFinished | CancelRequested):
                self._pending.hold(event)
            return
        outcome = await self._outcome(run, event, at_ms)
        self._recorder.record(outcome)
        self._measurements.measure(outcome, event)

    async def _loaded(self, event: RunEvent, run: Run | None) -> Run | None:
        """Return the run of an event whose steps are not in memory; for the end of an attempt, with
        them."""
        if run is None:
            return await self._loader.find(event.run_id)
        if isinstance(event, AttemptFinished) and run.version:
            return await self._loader.with_steps(run)
        return run

    async def _is_made_up(self, event: RunEvent, run: Run | None) -> bool:
        """Tell whether an event about a run whose steps are not in memory surely does not count. A run
        may have very many; whoever makes an event up must not have them all read."""
        if not self._reports.must_be_checked(event):
            return False
        row = run or await self._loader.row_of(event.run_id)
        return row is not None and not self._reports.may_count(event, row)

    async def give_up(self, event: LogEvent, info: ErrorInfo, at_ms: float) -> None:
        """End the run of an event that cannot be applied."""
        if isinstance(event, OutlookChanged):
            return
        run = await self._loader.find(event.run_id)
        if run is not None and not run.has_ended:
            self._failed.give_up(run, info, at_ms)
        if isinstance(event, RunAccepted):
            if run is None or run.status == RUN_REJECTED:  # otherwise an early event was at fault
                self._acceptance.cannot_begin(event, info, at_ms)
            self._acknowledgement.after_commit(event)

    async def _outcome(self, run: Run, event: RunEvent, at_ms: float) -> Outcome:
        """Apply an event; if it raises, once more, to its run as it was before."""
        try:
            return self._applied(run, event, at_ms)
        except Exception as error:
            fault = error
        again = await self._loader.again(run, fault)
        return self._applied(again, event, at_ms)

    def _applied(self, run: Run, event: RunEvent, at_ms: float) -> Outcome:
        before = SpentBefore(run, event) if run.has_ended else None
        try:
            return apply(run, event, at_ms, self._measurements.forecast_for(run), believed=True)
        except BaseException:  # half changed
            if before is None:
                self._runs.drop(run)
            else:
                before.restore()
            raise
