"""Translates facts of EVENTS into news about single runs, and these into events for clients.

Each text is rendered once, however many clients there are.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import structlog
from pydantic import BaseModel, ValidationError

from hocket.admin.live.event_facts import Fact
from hocket.kit.logs.log_limits import Reporting
from hocket.schemas.administration.live import RunNotice
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunFinished
from hocket.schemas.rest import StepDetail, StepSource
from hocket.schemas.run_changes import KIND
from hocket.schemas.structs.run_changes import RunChange, StepState, read

REJECTED = "rejected"
NO_LABELS: Mapping[str, str] = {}

log = structlog.get_logger(__name__)
_reporting = Reporting()


class RunNews:
    """What a fact says about one run. `log_seq` is the position in the partition's log at which it was
    written; None for a run's end, which is published only once the rows hold it."""

    def __init__(
        self, event_id: str, pipeline: str, run: RunChange | RunFinished, *, is_end: bool
    ) -> None:
        self.event_id = event_id
        self.pipeline = pipeline
        self.run_id = run.run_id
        self.status = run.status
        self.labels: Mapping[str, str] = run.labels or NO_LABELS
        self.is_end = is_end
        self.log_seq = run.log_seq if isinstance(run, RunChange) else None
        self.is_notice = is_end or (
            isinstance(run, RunChange) and (run.is_new or run.status == REJECTED)
        )
        """Whether followers of lists are told."""
        self._run = run

    @cached_property
    def notice(self) -> bytes:
        """The event for followers of lists."""
        run = self._run
        told = RunNotice(
            run_id=run.run_id,
            pipeline=self.pipeline,
            version=run.version,
            status=run.status,
            accepted_at=_moment(run.accepted_at_ms),
            deadline_at=_moment(run.deadline_at_ms),
            finished_at=None if run.finished_at_ms is None else _moment(run.finished_at_ms),
            labels=dict(self.labels),
            **({"class": run.priority} if isinstance(run, RunChange) else {}),
        )
        return event("run", told, self.event_id)

    @cached_property
    def steps(self) -> bytes:
        """The events for followers of the run: its changed steps."""
        changed = self._run.steps if isinstance(self._run, RunChange) else []
        last = len(changed) - 1
        return b"".join(
            event("step", _step(step), self.event_id if place == last else None)
            for place, step in enumerate(changed)
        )


def news_of(fact: Fact) -> Iterator[RunNews]:
    """Yield a fact's news about runs; nothing if it has none or cannot be parsed."""
    try:
        if fact.kind == KIND:
            for place, change in enumerate(read(fact.data).runs):
                yield RunNews(f"{fact.seq}.{place}", fact.pipeline, change, is_end=False)
        elif fact.kind == RunFinished.kind:
            ended = RunFinished.model_validate_json(fact.data)
            yield RunNews(f"{fact.seq}.0", fact.pipeline, ended, is_end=True)
    except (msgspec.MsgspecError, ValidationError, UnicodeDecodeError) as error:
        if count := _reporting.due("fact_malformed"):
            log.warning("fact_malformed", seq=fact.seq, reason=str(error), count=count)


def event(name: str, data: BaseModel, event_id: str | None = None) -> bytes:
    """Return a server-sent event."""
    text = data.model_dump_json(exclude_none=True, by_alias=True)
    return event_of_json(name, text.encode(), event_id)


def event_of_json(name: str, data: bytes, event_id: str | None = None) -> bytes:
    """Return a server-sent event whose data is JSON on one line."""
    place = f"id: {event_id}\n" if event_id else ""
    return f"event: {name}\n{place}data: ".encode() + data + b"\n\n"


def _step(step: StepState) -> StepDetail:
    started, finished = step.started_at_ms, step.finished_at_ms
    is_timed = started is not None and finished is not None
    return StepDetail(
        step=step.step,
        node=step.node,
        type=step.type,
        role=step.role,
        parent=step.parent,
        state=step.state,
        attempt=step.attempt,
        ready_at=_moment(step.ready_at_ms),
        dispatched_at=_moment_or_none(step.dispatched_at_ms),
        started_at=_moment_or_none(started),
        finished_at=_moment_or_none(finished),
        deadline_at=_moment_or_none(step.deadline_at_ms),
        slack_ms=step.slack_ms,
        duration_ms=round(finished - started, 3) if is_timed else None,  # type: ignore[operator]
        worker=step.worker,
        error=_read(step.error, ErrorInfo),
        source=_read(step.source, StepSource),
    )


def _read(raw: msgspec.Raw, model: type[Any]) -> Any:
    value = json.loads(bytes(raw))
    return None if value is None else model.model_validate(value)


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def _moment_or_none(at_ms: float | None) -> datetime | None:
    return None if at_ms is None else _moment(at_ms)
