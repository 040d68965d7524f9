"""The beginning of runs: a task is begun once, however often it is delivered.

A known task is answered again if its run has ended, and rejected if its key names a run of another
pipeline; one that intake rejected is recorded like any other end. Tasks are acknowledged with the
commit that holds their run: `task_acknowledgement.py`.
"""

from functools import partial

import structlog
from pydantic_core import to_json

from hocket.coordinator.core.run.beginning import accept, refuse, reject
from hocket.coordinator.core.run.state.restore import StoredRun
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.runs.end_publisher import EVENT_SOURCE
from hocket.coordinator.partition.runs.known_runs import KnownRuns
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.storage.pipelines.pipeline_catalog import Entry
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats import cloudevents, dead_letters
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo, HocketError, IdempotencyKeyReused
from hocket.schemas.labels import header_of
from hocket.schemas.messages import RunAccepted, TaskRejected, encoded
from hocket.schemas.pipeline.plan import check_input

log = structlog.get_logger(__name__)


class RunAcceptance:
    """Accepts the runs of one partition in one tenure."""

    def __init__(self, context: TenureContext, recorder: DecisionRecorder) -> None:
        self._services = context.services
        self._owner = context.owner
        self._tenure = context.tenure
        self._runs = context.runs
        self._notifier = context.notifier
        self._measurements = context.measurements
        self._origins = context.origins
        self._demand = context.demand
        self._acknowledgement = context.acknowledgement
        self._recorder = recorder
        self.known = KnownRuns(context)

    async def accept(self, event: RunAccepted, at_ms: float) -> bool:
        """Begin a run, unless it is known or cannot begin; tell whether it has begun."""
        known = await self.known.begun_by(event)
        if known is not None and known.pipeline != event.pipeline:
            await self._refuse_key(event, known)
            self._acknowledgement.after_commit(event)
            return False
        if known is not None:
            if known.has_ended:  # its end may still be waiting for its commit
                answer = partial(self._notifier.answer_again, known, event.parent)
                self._tenure.after_commit(answer)
            self._acknowledgement.after_commit(event)
            return False
        if event.rejected is not None:
            self._reject(event, at_ms)
            return False
        origin = await self._origins.stored(event.tenant, event.origin)
        refused: HocketError | None = None
        try:
            entry = await self._entry_for(event, origin)
        except HocketError as error:
            refused = error
        if refused is not None:
            await self._refuse(event, refused, at_ms)
            return False
        await self._begin(event, entry, origin, at_ms)
        return True

    def cannot_begin(self, event: RunAccepted, error: ErrorInfo, at_ms: float) -> None:
        """Record a run that no rule can begin as failed."""
        outcome = refuse(event, error, self._owner, now_ms=at_ms)
        self._recorder.record(outcome, first=True, surely=True)

    async def _begin(
        self, event: RunAccepted, entry: Entry, origin: StoredRun | None, at_ms: float
    ) -> None:
        plan = entry.compiled
        reuse = await self._origins.reuse(origin, event.origin, plan)
        forecast = self._measurements.forecast(event.tenant, event.pipeline, entry.version, plan)
        if event.version != entry.version:
            event = event.model_copy(update={"version": entry.version})
        outcome = accept(
            event,
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

    def _reject(self, event: RunAccepted, at_ms: float) -> None:
        """Record a run that was rejected: announced and acknowledged like any other end."""
        self.known.rejected(event)
        outcome = reject(event, self._owner, now_ms=at_ms)
        self._runs.remember(outcome.run)
        self._recorder.record(outcome, first=True)
        self._acknowledgement.after_commit(event)

    async def _entry_for(self, event: RunAccepted, origin: StoredRun | None) -> Entry:
        """Return the version that a run takes. A sub-run whose step names none takes that of the run
        which it retries, ended or not, otherwise the one of new runs."""
        catalog = self._services.catalog
        tenant, pipeline, version = event.tenant, event.pipeline, event.version
        if version and event.parent is None:  # chosen when it was accepted
            return await catalog.entry(tenant, pipeline, version)
        if origin is not None and event.origin is not None and event.origin.operation == "retry":
            version = version or origin.row["version"]
        entry = await catalog.entry_for(tenant, pipeline, version, event.run_id)
        if event.parent is not None:
            check_input(entry.plan, event.input)
        return entry

    async def _refuse(self, event: RunAccepted, error: HocketError, at_ms: float) -> None:
        """Answer for a run that cannot begin: its pipeline was removed, or a sub-run's input is
        wrong. A task is rejected and kept as a dead letter, to be redriven when its pipeline is
        back. A sub-run is recorded as failed, so that its parent is told however often that is lost."""
        log.error(
            "run_refused",
            **of_run(event.run_id, event.traceparent),
            code=error.code,
            reason=str(error),
        )
        if event.parent is not None:
            self.cannot_begin(event, error.info(), at_ms)
            return
        await self._bury(event, error.info())
        self._reject(event.model_copy(update={"rejected": error.info()}), at_ms)

    async def _refuse_key(self, event: RunAccepted, known: Run) -> None:
        """Refuse a task whose key names a run of another pipeline, which was not in Postgres yet
        when intake looked for it."""
        headers = _headers_of(event)
        error = IdempotencyKeyReused(
            field=cloudevents.key_header(headers), run_id=known.run_id, pipeline=known.pipeline
        ).info()
        await self._bury(event, error)
        bus = self._services.bus
        rejected = TaskRejected(tenant=event.tenant, pipeline=event.pipeline, error=error)
        if event.reply_to is not None:
            bus.publish_nowait(event.reply_to, encoded(rejected))
        identity = f"{event.run_id}:{event.pipeline}:key-reused"
        bus.publish_durable(
            subjects.event(event.tenant, event.pipeline, TaskRejected.kind),
            encoded(rejected),
            headers=cloudevents.event_headers("hocket.task.rejected", EVENT_SOURCE, identity),
        )

    async def _bury(self, event: RunAccepted, error: ErrorInfo) -> None:
        await dead_letters.bury(
            self._services.bus,
            "task",
            subject=subjects.task(event.tenant, event.pipeline),
            payload=to_json(event.input),
            headers=_headers_of(event),
            error=error,
        )


def _headers_of(event: RunAccepted) -> dict[str, str]:
    """Return the headers with which a task would be accepted as this run again, without what only
    its first publisher wanted: a deadline that passes, and an answer."""
    source, is_event, key = (event.idempotency_key or "").rpartition(cloudevents.KEY_SEPARATOR)
    budget_usd, origin = event.budget_usd, event.origin
    found: dict[str, object] = {
        cloudevents.PRIORITY: event.priority,
        cloudevents.BUDGET_USD: None if budget_usd is None else format(budget_usd, "f"),
        cloudevents.LABELS: event.labels and header_of(event.labels),
        cloudevents.TRACEPARENT: event.traceparent,
        cloudevents.IDEMPOTENCY_KEY: None if is_event else key,
        "ce-source": source,
        "ce-id": key if is_event else None,
    }
    if origin is not None:
        is_rerun = origin.operation == "rerun"  # a retry takes an edited input from its origin
        given = origin.step_input if is_rerun else None
        found |= {
            cloudevents.ORIGIN_RUN: origin.run_id,
            cloudevents.OPERATION: origin.operation,
            cloudevents.FROM_STEP: origin.from_step if is_rerun else None,
            cloudevents.STEP_INPUT: None if given is None else to_json(given).decode(),
            cloudevents.VERSION: event.version,
        }
    return {name: str(value) for name, value in found.items() if value}
