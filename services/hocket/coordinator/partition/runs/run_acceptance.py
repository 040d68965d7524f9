"""The beginning of runs: a task is begun once, however often it is delivered.

A task that is known is answered again where its run has ended; one that intake rejected is recorded like
any other end. Tasks are acknowledged with the commit that holds their run: `task_acknowledgement.py`.
"""

from collections import OrderedDict
from functools import partial

import structlog
from pydantic_core import to_json

from hocket.coordinator.core.run.beginning import accept, refuse, reject
from hocket.coordinator.core.run.state.run import RUN_REJECTED, Owner, Run
from hocket.coordinator.dispatch.demand_publisher import DemandPublisher
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events.log_reader import LogPosition
from hocket.coordinator.partition.measurements import Measurements
from hocket.coordinator.partition.runs.end_publisher import result_for
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.runs.run_notifier import RunNotifier
from hocket.coordinator.partition.runs.task_acknowledgement import TaskAcknowledgement
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.pipeline_catalog import Entry
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats import dead_letters
from hocket.kit.nats.cloudevents import IDEMPOTENCY_KEY
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import RunAccepted
from hocket.schemas.pipeline.plan import check_input

MAX_REJECTED = 5_000
"""Tasks whose rejection is remembered, to know them when they are delivered again."""
FORGOTTEN_MS = 15_000.0
"""A look-up of intake that is not later than this after a run was begun or ended may have missed it."""

log = structlog.get_logger(__name__)


class RunAcceptance:
    """That of one partition in one tenure."""

    def __init__(
        self,
        services: SharedServices,
        *,
        owner: Owner,
        tenure: Tenure,
        position: LogPosition,
        runs: Runs,
        notifier: RunNotifier,
        measurements: Measurements,
        origins: Origins,
        demand: DemandPublisher,
        recorder: DecisionRecorder,
        acknowledgement: TaskAcknowledgement,
    ) -> None:
        self._services = services
        self._owner = owner
        self._tenure = tenure
        self._position = position
        self._runs = runs
        self._notifier = notifier
        self._measurements = measurements
        self._origins = origins
        self._demand = demand
        self._recorder = recorder
        self._acknowledgement = acknowledgement
        self._rejected: OrderedDict[str, float] = OrderedDict()
        """When the tasks of rejected runs were stored: a key may come again with a new task."""

    async def accept(self, event: RunAccepted, at_ms: float) -> bool:
        """Begin a run, unless it is known, or cannot be; tell whether it has begun."""
        known = await self._known(event)
        if known is not None:
            if known.has_ended:  # its end may be waiting for its commit still
                answer = partial(self._notifier.answer_again, known, event.parent)
                self._tenure.after_commit(answer)
            self._acknowledgement.after_commit(event)
            return False
        if event.rejected is not None:
            self._reject(event, at_ms)
            return False
        try:
            entry = await self._entry_for(event)
        except HocketError as error:
            await self._refuse(event, error, at_ms)
            return False
        await self._begin(event, entry, at_ms)
        return True

    def cannot_begin(self, event: RunAccepted, error: ErrorInfo, at_ms: float) -> None:
        """End a run, as it begins, that no rule can begin."""
        outcome = refuse(event, error, self._owner, now_ms=at_ms)
        self._recorder.record(outcome, first=True, surely=True)

    async def _begin(self, event: RunAccepted, entry: Entry, at_ms: float) -> None:
        plan = entry.compiled
        reuse = await self._origins.reuse(event.tenant, event.origin, plan)
        forecast = self._measurements.forecast(event.tenant, event.pipeline, entry.version, plan)
        outcome = accept(
            event.model_copy(update={"version": entry.version}),
            plan,
            self._owner,
            now_ms=at_ms,
            forecast=forecast,
            reuse=reuse,
        )
        self._services.load.begun(outcome.run, entry.plan, forecast.expected)
        self._demand.accepted(outcome.run, entry, forecast.expected)
        self._recorder.record(outcome, first=True)
        self._acknowledgement.after_commit(event)

    async def _known(self, event: RunAccepted) -> Run | None:
        """Return the run that this task has begun before, if it has."""
        run_id = event.run_id
        known = self._runs.get(run_id)
        if known is None and self._may_be_old(event):
            known = (await self._services.store.known([run_id])).get(run_id)
        if known is not None and known.status == RUN_REJECTED and self._is_new(event):
            self._runs.forget(run_id)
            return None
        return known

    def _is_new(self, event: RunAccepted) -> bool:
        """Tell whether a task whose run was rejected is not that very task, delivered again."""
        before = self._rejected.get(event.run_id)
        return (
            before is None
            or event.task_ack is None
            or before != parse_ack_subject(event.task_ack).stored_at_ms
        )

    def _may_be_old(self, event: RunAccepted) -> bool:
        """Tell whether a run that is not in memory may stand in Postgres: its task was stored before we
        began to read the log, which a restored server may deliver as if it were new; or intake looked
        it up before what is not in memory any more was surely written. Other tasks are new; sub-runs
        come without a task."""
        if event.task_ack is None:
            return True
        checked_at_ms = event.checked_at_ms
        if checked_at_ms is not None and checked_at_ms < self._runs.forgotten_ms + FORGOTTEN_MS:
            return True
        return parse_ack_subject(event.task_ack).stored_at_ms <= self._position.attached_at_ms

    def _reject(self, event: RunAccepted, at_ms: float) -> None:
        """End a run that was rejected: recorded, told and acknowledged like any other end."""
        if event.task_ack is not None:
            self._rejected[event.run_id] = parse_ack_subject(event.task_ack).stored_at_ms
            if len(self._rejected) > MAX_REJECTED:
                self._rejected.popitem(last=False)
        outcome = reject(event, self._owner, now_ms=at_ms)
        self._runs.remember(outcome.run)
        self._recorder.record(outcome, first=True)
        self._acknowledgement.after_commit(event)

    async def _entry_for(self, event: RunAccepted) -> Entry:
        entry = await self._services.catalog.entry(event.tenant, event.pipeline, event.version)
        if event.parent is not None:
            check_input(entry.plan, event.input)
        return entry

    async def _refuse(self, event: RunAccepted, error: HocketError, at_ms: float) -> None:
        """Answer for a run that cannot be: its pipeline went away, or a sub-run's input is wrong. A
        task is kept as a dead letter, to be redriven when its pipeline is back, and rejected."""
        log.error(
            "run_refused",
            **of_run(event.run_id, event.traceparent),
            code=error.code,
            reason=str(error),
        )
        if event.parent is not None:
            self._notifier.tell_parent(event.parent, result_for(event.parent, error=error.info()))
            return
        key = event.idempotency_key
        await dead_letters.bury(
            self._services.bus,
            "task",
            subject=subjects.task(event.tenant, event.pipeline),
            payload=to_json(event.input),
            headers=None if key is None else {IDEMPOTENCY_KEY: key},
            error=error.info(),
        )
        self._reject(event.model_copy(update={"rejected": error.info()}), at_ms)
