"""Publishes to EVENTS what a commit changed of runs, for those who follow them: one fact per
pipeline.

A change is published once, after the commit, and never again: if a coordinator is killed in
between, followers miss that change, and see the next one and the end. Rows that Postgres refused
are left out.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from operator import itemgetter

import structlog
from msgspec import Raw
from msgspec.structs import replace

from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS, Row
from hocket.coordinator.core.run.state.run import RUNNING
from hocket.coordinator.storage.pending_changes import Dirty, Pending
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.run_changes import KIND, MAX_ERROR_CHARS, MAX_FACT_BYTES
from hocket.schemas.structs.run_changes import NULL, RunChange, RunsChanged, StepState, write

EVENT_SOURCE = "hocket/coordinator"
STEP_BYTES = 320
"""About how many bytes a step takes in a fact, without its error."""
MAX_STEPS = MAX_FACT_BYTES // STEP_BYTES
HEADERS = {"ce-specversion": "1.0", "ce-type": "hocket.runs.changed", "ce-source": EVENT_SOURCE}

_RUN = {name: place for place, name in enumerate(RUN_COLUMNS)}
_STATUS, _DEADLINE, _FINISHED = _RUN["status"], _RUN["deadline_at"], _RUN["finished_at"]
_STEP = {name: place for place, name in enumerate(STEP_COLUMNS)}
_ERROR, _FACTS = _STEP["error"], _STEP["facts"]
_told = itemgetter(
    *[
        _STEP[name]
        for name in (
            "key",
            "path",
            "type",
            "role",
            "state",
            "attempt",
            "ready_at",
            "parent",
            "dispatched_at",
            "started_at",
            "finished_at",
            "deadline_at",
            "slack_ms",
            "worker",
        )
    ]
)
"""The published columns of a step's row, in the order of StepState."""

log = structlog.get_logger(__name__)
_reporting = Reporting()


class ChangePublisher:
    """Publishes what the parts of a batch changed, once they are written."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def committed(self, parts: Iterable[tuple[int, Pending]]) -> None:
        """Publish what was written, by partition."""
        facts: dict[tuple[str, str], _Fact] = {}
        for partition, part in parts:
            for run_id, dirty in part.dirty.items():
                if run_id not in part.aside:
                    key = (dirty.run.tenant, dirty.run.pipeline)
                    fact = facts.get(key)
                    if fact is None:
                        fact = facts[key] = _Fact()
                    for change in _changes_of(dirty, partition, part.seq):
                        fact.add(change)
                        if fact.size_bytes >= MAX_FACT_BYTES:
                            self._publish(*key, fact)
                            fact = facts[key] = _Fact()
        for (tenant, pipeline), fact in facts.items():
            if fact.runs:
                self._publish(tenant, pipeline, fact)

    def _publish(self, tenant: str, pipeline: str, fact: "_Fact") -> None:
        subject = subjects.event(tenant, pipeline, KIND)
        body = write(RunsChanged(tenant, pipeline, fact.runs))
        try:
            told = self._bus.publish_durable(subject, body, headers=HEADERS)
        except HocketError as error:
            _not_told(error)
        else:
            told.add_done_callback(_acknowledged)


class _Fact:
    """A fact that is being assembled."""

    __slots__ = ("runs", "size_bytes")

    def __init__(self) -> None:
        self.runs: list[RunChange] = []
        self.size_bytes = 0

    def add(self, change: RunChange) -> None:
        self.runs.append(change)
        self.size_bytes += STEP_BYTES * (1 + len(change.steps))
        for step in change.steps:
            if step.error is not NULL:
                self.size_bytes += len(bytes(step.error))


def _changes_of(dirty: Dirty, partition: int, log_seq: int) -> Sequence[RunChange]:
    """Return what is published of a run: its change, and further ones if many steps have changed."""
    run, row = dirty.run, dirty.row
    steps = [_state(row) for row in dirty.steps.values() if row is not None]
    if row is None and not steps:
        return ()
    if row is not None:
        status, deadline_at_ms, finished_at_ms = row[_STATUS], row[_DEADLINE], row[_FINISHED]
    else:
        status = run.status if dirty.had_ended else RUNNING
        deadline_at_ms = run.deadline_at_ms
        finished_at_ms = run.finished_at_ms if dirty.had_ended else None
    change = RunChange(
        run.run_id,
        partition,
        log_seq,
        run.version,
        status,
        run.priority,
        run.accepted_at_ms,
        deadline_at_ms,
        finished_at_ms,
        dirty.first,
        run.labels or None,
        steps,
    )
    if len(steps) <= MAX_STEPS:
        return (change,)
    return [
        replace(change, is_new=dirty.first and first == 0, steps=steps[first : first + MAX_STEPS])
        for first in range(0, len(steps), MAX_STEPS)
    ]


def _state(row: Row) -> StepState:
    state = StepState(*_told(row))
    error, facts = row[_ERROR], row[_FACTS]
    if error is not None and len(error) <= MAX_ERROR_CHARS:
        state.error = Raw(error.encode())
    if facts is not None and '"source"' in facts:
        source = json.loads(facts).get("source")
        state.source = NULL if source is None else Raw(json.dumps(source).encode())
    return state


def _acknowledged(told: "asyncio.Future[PubAck]") -> None:
    if not told.cancelled() and (error := told.exception()) is not None:
        _not_told(error)


def _not_told(error: BaseException) -> None:
    if count := _reporting.due("changes_not_told"):
        log.warning("run_changes_not_told", reason=str(error), count=count)
