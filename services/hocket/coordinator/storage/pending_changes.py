"""What partitions decided that is not written yet, and the batch made from it.

Runs are changed in place, so their rows are made at once, event by event: a batch holds each run as
it was after the last of the batch's events, and a run that an event left half changed is read back
from the existing rows (`unwritten`). Of a run that Postgres refuses, less and less is written
(`Kept`), until it is accepted.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeVar

import structlog

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.ends.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.core.run.state.bare_rows import (
    bare_attempt_row,
    bare_run_row,
    bare_step_row,
)
from hocket.coordinator.core.run.state.columns import Row, attempt_row, completed
from hocket.coordinator.core.run.state.rows import (
    charges_row,
    run_row,
    spending_row,
    step_row,
)
from hocket.coordinator.core.run.state.run import RUNNING, Run, Step
from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.storage.commit_batch import Batch, batch_chars
from hocket.kit.logs.run_lines import of_run
from hocket.kit.process.limits.memory import end_if_short

log = structlog.get_logger(__name__)


class Kept(IntEnum):
    """How much is written of a run whose rows Postgres refused."""

    BARE = 1
    """Names, states, times and the error."""
    BAREST = 2
    """Only the run's own row, without input, caller and key."""
    NOTHING = 3


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run whose rows were refused: its last state, the steps that this changed, and
    what follows the commit."""

    run: Run
    changed: list[Step]
    follows: Callable[[], None]


Refused = Callable[[Run, Exception, bool], Ended | None]
"""Ends a run whose rows are refused; returns None if its end is already written and only something
late is refused (the flag)."""


class Dirty:
    """What is to be written of a run, as rows. `first`: its own row is not in Postgres yet, as far
    as we know; `closes`: all its steps in Postgres are ended with it."""

    __slots__ = (
        "closes",
        "fault",
        "first",
        "flow",
        "had_ended",
        "row",
        "run",
        "run_changed",
        "spending",
        "steps",
    )

    def __init__(self, run: Run) -> None:
        self.run = run
        self.first = False
        self.closes = False
        self.run_changed = False
        self.had_ended = False
        """Whether the run had ended after these changes; it may have ended since."""
        self.row: Row | None = None
        self.steps: dict[str, Row | None] = {}
        """By key; None if only the bare row is written."""
        self.spending: dict[str, Row] = {}
        """By the key of a step, or "" beside steps: what more was spent after the run had ended."""
        self.flow: list[Row] = []
        """The places where the run waits to start, in the batch that begins it."""
        self.fault: Exception | None = None
        """Why no rows could be made from it."""

    def take(
        self,
        run: Run,
        changed: Sequence[Step],
        *,
        run_changed: bool,
        parked_until_ms: float | None = None,
        spender: Step | Run | None = None,
    ) -> None:
        """Make the rows of what has changed, in its present state."""
        self.run = run
        self.had_ended = run.status != RUNNING
        run_id, steps = run.run_id, self.steps
        try:
            if run_changed:
                self.run_changed = True
                self.row = run_row(run, first=self.first, parked_until_ms=parked_until_ms)
            for step in changed:
                before, row = steps.get(step.key), step_row(run_id, step)
                steps[step.key] = row if before is None else completed(row, before)
            if isinstance(spender, Step):
                self.spending[spender.key] = spending_row(run, spender)
            if spender is not None and (run.charges or run.untold):
                self.spending[""] = charges_row(run)
        except Exception as error:  # the run is set aside with its batch
            end_if_short(error)
            self.fault = error
            for step in changed:
                steps[step.key] = None


@dataclass(slots=True)
class Pending:
    """What the next commit writes of a partition, up to which message of its log, and what follows."""

    seq: int
    msg_id: str
    number: int = 0
    """The number of its batch within the tenure."""
    dirty: dict[str, Dirty] = field(default_factory=dict)
    attempts: dict[tuple[str, str, int, str], tuple[str, RecordAttempt]] = field(
        default_factory=dict
    )
    told: NotificationWatermark | None = None
    outlooks: dict[tuple[str, str, str], Estimate] = field(default_factory=dict)
    after: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    """Each with the id of the run for which it is to be done only if that run is written as
    decided, or ""."""
    aside: dict[str, Kept] = field(default_factory=dict)
    """Runs that Postgres refuses, and how much of them is written nevertheless."""
    events: int = 0
    size_bytes: int = 0
    written: asyncio.Event | None = None
    """Set once it is written or dropped, if somebody waits for that."""

    def forget(self, run_id: str) -> None:
        """Drop what would be written of a run, and what would follow."""
        self.dirty.pop(run_id, None)
        self.attempts = {key: kept for key, kept in self.attempts.items() if key[0] != run_id}
        self.after = [one for one in self.after if one[0] != run_id]


class Holder(Protocol):
    """The holder of pending changes: a partition under one epoch."""

    partition: int
    epoch: int


H = TypeVar("H", bound=Holder)


def batch_of(
    parts: Mapping[H, Pending],
) -> tuple[Batch, list[tuple[H, str, Exception]]]:
    """Return the batch, and the runs for which no rows can be made, each with the reason."""
    batch = Batch()
    unmade: list[tuple[H, str, Exception]] = []
    for tenure, part in parts.items():
        number = tenure.partition
        batch.offsets[number] = (tenure.epoch, part.seq, part.msg_id)
        batch.numbers[number] = part.number
        if part.told is not None:
            batch.told[number] = part.told
        attempts: dict[str, list[RecordAttempt]] = {}
        for run_id, attempt in part.attempts.values():
            attempts.setdefault(run_id, []).append(attempt)
        for run_id, dirty in part.dirty.items():
            batch.placements[run_id] = (dirty.run.tenant, dirty.run.accepted_at_ms)
            kept = part.aside.get(run_id)
            if kept is not None:
                _add_remains(batch, dirty, kept, attempts.get(run_id, ()))
                continue
            if dirty.fault is not None:
                unmade.append((tenure, run_id, dirty.fault))
                continue
            try:
                _add_rows(batch, run_id, dirty, attempts.get(run_id, ()))
            except Exception as error:
                end_if_short(error)
                unmade.append((tenure, run_id, error))
        batch.outlooks += [
            (number, *key, estimate.weight, estimate.mean_ms, estimate.variance)
            for key, estimate in part.outlooks.items()
        ]
    batch.size_chars = batch_chars(batch)
    return batch, unmade


def _add_rows(batch: Batch, run_id: str, dirty: Dirty, attempts: Collection[RecordAttempt]) -> None:
    """Add the rows of a run, or none of them if those of its attempts cannot be made."""
    if attempts:
        batch.attempts += [attempt_row(run_id, attempt) for attempt in attempts]
    if dirty.row is not None:
        batch.runs.append(dirty.row)
    batch.steps += filter(None, dirty.steps.values())
    batch.spending += dirty.spending.values()
    batch.flow += dirty.flow
    if dirty.closes:
        batch.closed.append(run_id)
    if dirty.had_ended:
        _leave(batch, dirty.run)


def _add_remains(
    batch: Batch, dirty: Dirty, kept: Kept, attempts: Collection[RecordAttempt]
) -> None:
    """Add what is kept of a refused run; if even that cannot be made, it is left out."""
    for less in Kept:
        if kept <= less < Kept.NOTHING:
            try:
                runs, steps, tried = _remains_of(dirty, less, attempts)
            except Exception as error:
                end_if_short(error)
                log.error(
                    "run_not_kept",
                    **of_run(dirty.run.run_id, dirty.run.traceparent),
                    reason=reason_of(error),
                )
                continue
            batch.runs += runs
            batch.steps += steps
            batch.attempts += tried
            if less is Kept.BARE:
                batch.spending += dirty.spending.values()
            batch.closed.append(dirty.run.run_id)
            _leave(batch, dirty.run)
            return


def _leave(batch: Batch, run: Run) -> None:
    """With a run's end, give back the places that it held in its pipeline's flow control."""
    if run.plan is not None and run.plan.flow:
        batch.left.append(run.run_id)


def _remains_of(
    dirty: Dirty, kept: Kept, attempts: Collection[RecordAttempt]
) -> tuple[list[Row], list[Row], list[Row]]:
    run, run_id = dirty.run, dirty.run.run_id
    barest = kept is Kept.BAREST
    row = bare_run_row(run, first=dirty.first, barest=barest)
    if barest:
        return [row], [], []
    return (
        [row],
        [bare_step_row(run_id, run.steps[key]) for key in dirty.steps if key in run.steps],
        [bare_attempt_row(run_id, attempt) for attempt in attempts],
    )


def drop_outlook(part: Pending, tenant: str, pipeline: str, error: Exception) -> None:
    """Leave out a partition's forecast of a pipeline: it will be measured again."""
    log.error("outlook_refused", tenant=tenant, pipeline=pipeline, reason=reason_of(error))
    part.outlooks = {
        key: estimate for key, estimate in part.outlooks.items() if key[:2] != (tenant, pipeline)
    }
