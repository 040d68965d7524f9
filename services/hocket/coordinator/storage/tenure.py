"""What one partition decided under one epoch, until the committer has written it.

An event changes several things, which are written together with the offset behind it or not at all. A
tenure is over when another coordinator has the partition, or this one let go of it: then what it
decided, and what would have followed, is dropped.
"""

import asyncio
from collections.abc import Callable, Iterable

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.ends.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.state.columns import Row
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.time.forecasts import KeptEstimate
from hocket.coordinator.storage.commit_schedule import CommitSchedule
from hocket.coordinator.storage.pending_changes import Dirty, Pending, Refused
from hocket.coordinator.storage.store import Offset


class Tenure:
    """What is decided under one epoch and not written yet; made by `Committer.open`. `lost` is
    called when another coordinator has ended it, `refused` for a run whose rows Postgres refuses,
    `ended` when it is over."""

    def __init__(
        self,
        schedule: CommitSchedule,
        partition: int,
        offset: Offset,
        *,
        lost: Callable[[], None],
        refused: Refused,
        ended: Callable[["Tenure"], None],
    ) -> None:
        self.partition = partition
        self.epoch = offset.epoch
        self.over = False
        self.lost = lost
        self.refused = refused
        self._ended = ended
        self._schedule = schedule
        self._offset = offset.applied_seq, offset.applied_msg_id
        self._batches = 0
        self._pending: Pending | None = None
        self._applying = False
        """An event is half applied: what it changed and the offset behind it are written together."""
        self._passed_over = False
        """The committer came while an event was half applied, and takes what is whole behind it."""
        self._whole: Pending | None = None
        """What was pending when that event was applied: the next one may begin at once, and wait for
        Postgres, so that the committer would never find the partition between two events."""
        self._taken: Pending | None = None
        """What the committer writes at present."""
        self._written = asyncio.Event()
        """Set while nothing is decided that is not written."""
        self._written.set()

    # ---- the partition's side ---------------------------------------------------------------

    def begin_event(self) -> None:
        """Write nothing of the event that is applied from now on until it is applied as a whole."""
        self._applying = True

    def end_event(self) -> None:
        """The event is applied, or could not be."""
        self._applying = False

    def add(
        self,
        run: Run,
        *,
        changed: Iterable[Step],
        run_changed: bool,
        first: bool,
        attempts: list[RecordAttempt],
        urgent: bool,
        parked_until_ms: float | None = None,
        closes: bool = False,
        size_bytes: int = 0,
    ) -> None:
        """Write a run's new state with the next commit; `first` for a run that was accepted now,
        `parked_until_ms` for one that leaves the memory; `closes` for one that ended without all of its
        steps being known here; `size_bytes` is by how much its values have grown."""
        pending = self._pending or self._begin()
        dirty = pending.dirty.get(run.run_id)
        if dirty is None:
            dirty = pending.dirty[run.run_id] = Dirty(run)
        dirty.first = dirty.first or first
        dirty.closes = dirty.closes or closes
        dirty.take(run, changed, run_changed=run_changed, parked_until_ms=parked_until_ms)
        if size_bytes > 0 and not self.over:
            pending.size_bytes += size_bytes
            self._schedule.grew(0, size_bytes)
        for attempt in attempts:
            identity = (run.run_id, attempt.key, attempt.attempt, attempt.outcome)
            pending.attempts[identity] = (run.run_id, attempt)
        self._signal(urgent=urgent)

    def expects(self, kept: list[KeptEstimate]) -> None:
        """Write what the partition expects from now on with the commit of its event."""
        pending = self._pending or self._begin()
        for row in kept:
            pending.outlooks[row.tenant, row.pipeline, row.path] = row.estimate

    def applied(self, seq: int, msg_id: str, size_bytes: int) -> None:
        """Move the partition's offset with the next commit: behind an event of so many bytes."""
        if self.over:
            return
        pending = self._pending or self._begin()
        pending.events += 1
        pending.size_bytes += size_bytes
        pending.seq, pending.msg_id = self._offset = seq, msg_id
        self._schedule.grew(1, size_bytes)
        self._schedule.notify()
        if self._passed_over and self._whole is None:
            self._passed_over = False
            self._whole, self._pending = pending, None
            self._schedule.request_flush()

    def after_commit(
        self, action: Callable[[], None], *, run_id: str = "", urgent: bool = False
    ) -> None:
        """Do something after the commit of what was decided until now; with a `run_id` only if that run
        is written as it was decided."""
        (self._pending or self._begin()).after.append((run_id, action))
        self._signal(urgent=urgent)

    def keep_watermark(self, watermark: NotificationWatermark) -> None:
        """Keep up to when everybody is known to be notified of the ends of runs."""
        (self._pending or self._begin()).told = watermark

    async def write_watermark(self, watermark: NotificationWatermark) -> None:
        """Keep it, and wait until it is written, or the tenure is over."""
        self.keep_watermark(watermark)
        await self.flush()

    async def flush(self) -> None:
        """Wait until all that was decided is written, or the tenure is over."""
        self._schedule.request_flush()
        await self._written.wait()

    def end(self) -> None:
        """Drop what is not written; nothing that follows it will be done."""
        self.over = True
        self._ended(self)
        for part in (self._whole, self._pending):
            if part is not None:
                self._schedule.shrank(part.events, part.size_bytes)
        self._taken = self._whole = self._pending = None
        self._written.set()

    # ---- the committer's side ---------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """Whether there is more to write than what was taken."""
        return self._pending is not None or self._whole is not None

    def take(self) -> Pending | None:
        """Return what may be written now, if anything: no half of an event."""
        if self._whole is not None:
            part, self._whole = self._whole, None
        elif self._pending is not None and not self._applying:
            part, self._pending = self._pending, None
        else:
            self._passed_over = self._pending is not None
            return None
        self._batches += 1
        part.number = self._batches
        self._taken = part
        return part

    def wrote(self) -> None:
        """What was taken is written."""
        self._taken = None
        if not self.has_pending:
            self._written.set()

    def unwritten(self, run_id: str) -> list[Dirty]:
        """Return what is decided of a run and may not be in Postgres, in this order."""
        parts = (self._taken, self._whole, self._pending)
        return [part.dirty[run_id] for part in parts if part is not None and run_id in part.dirty]

    def withdraw(self, run_id: str) -> dict[str, Row | None]:
        """Drop what was decided of a run since `take`; return the steps that this changed."""
        steps: dict[str, Row | None] = {}
        for part in (self._whole, self._pending):
            if part is not None and run_id in part.dirty:
                steps |= part.dirty[run_id].steps
                part.forget(run_id)
        return steps

    def _signal(self, *, urgent: bool) -> None:
        if urgent:
            self._schedule.request_flush()
        else:
            self._schedule.mark_dirty()

    def _begin(self) -> Pending:
        pending = Pending(*self._offset)
        if not self.over:
            self._pending = pending
            self._written.clear()
            self._schedule.notify()
        return pending
