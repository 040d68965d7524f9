"""What one partition decided under one epoch, until the committer has written it.

The changes themselves are kept in `unwritten_changes.py`. A tenure is over when another coordinator
has the partition, or this one let go of it: then its unwritten decisions, and what would have
followed them, are dropped.
"""

import asyncio
from collections.abc import Callable, Sequence

from hocket.coordinator.core.run.commands import RecordAttempt, WaitForFlow
from hocket.coordinator.core.run.ends.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.state.rows import flow_rows
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.time.pipeline_forecasts import KeptEstimate
from hocket.coordinator.storage.commit_schedule import CommitSchedule
from hocket.coordinator.storage.pending_changes import Dirty, Pending, Refused
from hocket.coordinator.storage.store import Offset
from hocket.coordinator.storage.unwritten_changes import UnwrittenChanges


class Tenure:
    """What is decided under one epoch and not written yet; created by `Committer.open`. `lost` is
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
        self.unwritten = UnwrittenChanges((offset.applied_seq, offset.applied_msg_id))

    def add(
        self,
        run: Run,
        *,
        changed: Sequence[Step],
        run_changed: bool,
        first: bool,
        attempts: Sequence[RecordAttempt],
        urgent: bool,
        parked_until_ms: float | None = None,
        closes: bool = False,
        size_bytes: int = 0,
        flow: WaitForFlow | None = None,
        spender: Step | Run | None = None,
    ) -> None:
        """Write a run's new state with the next commit. `first`: the run has just been accepted;
        `parked_until_ms`: it leaves the memory until then (epoch ms); `closes`: it ended although
        not all of its steps are known here; `size_bytes`: by how much its values have grown;
        `flow`: where it waits to start; `spender`: a step for which more was spent after the
        end, or the run if no step reports it."""
        pending = self.unwritten.pending or self._begin()
        dirty = pending.dirty.get(run.run_id)
        if dirty is None:
            dirty = pending.dirty[run.run_id] = Dirty(run)
        if first:
            dirty.first = True
        if closes:
            dirty.closes = True
        if flow is not None:
            dirty.flow = flow_rows(run, flow)
        dirty.take(
            run,
            changed,
            run_changed=run_changed,
            parked_until_ms=parked_until_ms,
            spender=spender,
        )
        if size_bytes > 0 and not self.over:
            pending.size_bytes += size_bytes
            self._schedule.grew(0, size_bytes)
        for attempt in attempts:
            identity = (run.run_id, attempt.key, attempt.attempt, attempt.outcome)
            pending.attempts[identity] = (run.run_id, attempt)
        self._signal(urgent=urgent)

    def expects(self, kept: list[KeptEstimate]) -> None:
        """Write the partition's new forecasts with the commit of their event."""
        pending = self.unwritten.pending or self._begin()
        for row in kept:
            pending.outlooks[row.tenant, row.pipeline, row.path] = row.estimate

    def applied(self, seq: int, msg_id: str, size_bytes: int) -> None:
        """Advance the partition's offset with the next commit, past an event of this size."""
        if self.over:
            return
        pending = self.unwritten.pending or self._begin()
        self._schedule.grew(1, size_bytes)
        self._schedule.notify()
        if self.unwritten.applied(pending, seq, msg_id, size_bytes):
            self._schedule.request_flush()

    def break_off(self) -> None:
        """Note that the event in progress is not applied any further, because its message comes again,
        or the log has lost it. What it decided so far is written, without its place in the log."""
        if self.unwritten.break_off():
            self._schedule.notify()
            self._schedule.request_flush()

    def after_commit(
        self, action: Callable[[], None], *, run_id: str = "", urgent: bool = False
    ) -> None:
        """Do something after the commit of what has been decided so far; with a `run_id`, only if
        that run is written as it was decided."""
        (self.unwritten.pending or self._begin()).after.append((run_id, action))
        self._signal(urgent=urgent)

    def keep_watermark(self, watermark: NotificationWatermark) -> None:
        """Store up to when the ends of runs are known to be announced, with the next commit."""
        (self.unwritten.pending or self._begin()).told = watermark

    async def write_watermark(self, watermark: NotificationWatermark) -> None:
        """Store the watermark, and wait until it is written, or the tenure is over."""
        self.keep_watermark(watermark)
        await self.flush()

    async def flush(self) -> None:
        """Wait until everything that has been decided so far is written, or the tenure is over. What is
        decided meanwhile is not waited for: a busy partition always decides something."""
        self._schedule.request_flush()
        parts = self.unwritten.parts
        if parts:
            latest = parts[-1]
            if latest.written is None:
                latest.written = asyncio.Event()
            await latest.written.wait()

    def end(self) -> None:
        """Drop what is not written; nothing that would follow it is done."""
        self.over = True
        self._ended(self)
        parts = self.unwritten.parts
        for part in self.unwritten.drop():
            self._schedule.shrank(part.events, part.size_bytes)
        for part in parts:
            _announce(part)

    def wrote(self, part: Pending) -> None:
        """Note that what the committer took is written."""
        self.unwritten.wrote()
        _announce(part)

    def _signal(self, *, urgent: bool) -> None:
        if urgent:
            self._schedule.request_flush()
        else:
            self._schedule.mark_dirty()

    def _begin(self) -> Pending:
        if self.over:
            return self.unwritten.unkept()
        pending = self.unwritten.begin()
        self._schedule.notify()
        return pending


def _announce(part: Pending) -> None:
    """Tell those who wait for a part that it is written or dropped."""
    if part.written is not None:
        part.written.set()
