"""Applying one message of the log after the other: `apply` for events of runs that are there, the
beginning of runs, and what partitions expect.

While Postgres is away an event waits; one that our rules cannot take is kept as a dead letter, its run
ends, and the next is applied. A run is changed in place: one that an exception left half changed is
dropped before anything else is done, read back as it was decided until then (`runs/run_loader.py`), and
the event is applied once more.
"""

import asyncio

import structlog

from hocket.coordinator.core.run.constructs.results import may_tell
from hocket.coordinator.core.run.faults import EventNotApplicable, reason_of
from hocket.coordinator.core.run.machine import apply
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events.event_reader import EventReader
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.events.pending_events import PendingEvents
from hocket.coordinator.partition.measurements import Measurements
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_acceptance import RunAcceptance
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.runs.run_loader import RunLoader
from hocket.coordinator.partition.runs.task_acknowledgement import TaskAcknowledgement
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY, fails_alone
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    LogEvent,
    OutlookChanged,
    RunAccepted,
    RunEvent,
)

PAUSE_S = 0.2

log = structlog.get_logger(__name__)


class EventHandler:
    """That of one partition in one tenure."""

    def __init__(
        self,
        services: SharedServices,
        *,
        tenure: Tenure,
        runs: Runs,
        reader: EventReader,
        acceptance: RunAcceptance,
        loader: RunLoader,
        measurements: Measurements,
        recorder: DecisionRecorder,
        failed: FailedRuns,
        acknowledgement: TaskAcknowledgement,
    ) -> None:
        self._services = services
        self._tenure = tenure
        self._runs = runs
        self._reader = reader
        self._acceptance = acceptance
        self._loader = loader
        self._measurements = measurements
        self._recorder = recorder
        self._failed = failed
        self._acknowledgement = acknowledgement
        self._pending = PendingEvents()

    async def handle(self, message: LogMessage) -> None:
        """Apply one message of the log."""
        await self._services.committer.wait_for_capacity()
        await self._services.bus.wait_for_capacity()
        self._tenure.begin_event()
        try:
            events = await self._reader.events_of(message)
            for event in self._reader.believed(events, message):
                self._services.metrics.applied(message.kind)
                await self._apply_surely(event, message)
            self._services.dispatcher.release()
        finally:
            self._tenure.end_event()
        self._tenure.applied(message.seq, message.msg_id, len(message.body))
        for event in events:
            if not isinstance(event, OutlookChanged):
                self._runs.grew(event.run_id, len(message.body) // len(events))

    async def _apply_surely(self, event: LogEvent, message: LogMessage) -> None:
        """Apply an event; wait while Postgres is away; set one aside that our rules cannot take."""
        place = {"partition": self._tenure.partition, "seq": message.seq}
        fault: Exception | None = None
        while True:
            try:
                if fault is None:
                    await self._apply(event, message.at_ms)
                else:
                    await self._set_aside(event, message, fault)
                return
            except BusUnavailable:
                raise  # the process ends
            except AWAY as error:
                log.warning("log_waits", **place, reason=str(error))
            except Exception as error:
                if fault is not None:
                    raise
                end_if_short(error)
                log.exception("log_event_failed", **place)
                if await fails_alone(error, self._services.store.ping):
                    fault = error
                    continue
            await asyncio.sleep(PAUSE_S)

    async def _set_aside(self, event: LogEvent, message: LogMessage, error: Exception) -> None:
        """End the run of an event that cannot be applied, and keep the event as a dead letter: in this
        order, because the letter may have to wait for NATS."""
        info = EventNotApplicable(kind=event.kind, reason=reason_of(error)).info()
        await self._end_run_of(event, message, info)
        await self._reader.bury(message, info)
        self._services.metrics.set_aside("event")

    async def _end_run_of(self, event: LogEvent, message: LogMessage, info: ErrorInfo) -> None:
        if isinstance(event, OutlookChanged):
            return
        run = await self._loader.find(event.run_id)
        if run is not None and not run.has_ended:
            self._failed.give_up(run, info, message.at_ms)
        if isinstance(event, RunAccepted):
            if run is None or run.status == RUN_REJECTED:  # else what came early was at fault
                self._acceptance.cannot_begin(event, info, message.at_ms)
            self._acknowledgement.after_commit(event)

    async def _apply(self, event: LogEvent, at_ms: float) -> None:
        if isinstance(event, RunAccepted):
            if await self._acceptance.accept(event, at_ms):
                for early in self._pending.take(event.run_id):
                    await self._apply(early, at_ms)
            return
        if isinstance(event, OutlookChanged):
            self._tenure.expects(self._measurements.change(event))
            return
        run = await self._loader.find(event.run_id)
        if isinstance(event, AttemptFinished):
            if run is not None and not may_tell(run, event, self._services.capabilities):
                return
            self._services.dispatcher.finished(event)
        if run is None:
            if isinstance(event, AttemptFinished | CancelRequested):
                self._pending.hold(event)
            return
        outcome = await self._outcome(run, event, at_ms)
        self._recorder.record(outcome)
        self._measurements.measure(outcome, event)
        run = outcome.run
        if run.plan is not None and run.plan.degrades and isinstance(event, AttemptFinished):
            self._measurements.measure_hop(run, event)

    async def _outcome(self, run: Run, event: RunEvent, at_ms: float) -> Outcome:
        """Apply an event to its run, once more where that raises."""
        try:
            return self._applied(run, event, at_ms)
        except Exception as error:
            end_if_short(error)
            log.warning(
                "event_applied_anew", **of_run(run.run_id, run.traceparent), reason=reason_of(error)
            )
        again = await self._loader.find(run.run_id)
        assert again is not None, run.run_id
        return self._applied(again, event, at_ms)

    def _applied(self, run: Run, event: RunEvent, at_ms: float) -> Outcome:
        try:
            return apply(run, event, at_ms, self._measurements.forecast_for(run), believed=True)
        except BaseException:
            self._runs.drop(run)  # half changed
            raise
