"""One committer per process: gathers what the partitions decided and writes it batch by batch.

A partition that is owned has a tenure here: what it decided under its epoch and what follows. States
of the committer: idle, gathering (a run that ended is written at once, other state within GATHER_MS,
mere offsets within IDLE_OFFSET_MS), writing, waiting (Postgres is away: the batch is kept and tried
again), setting aside (Postgres refuses the batch: `refusals.py` finds the runs that it is refused
for, they end with an error, and the others are written). What must come after a commit (replies, acks,
steps with effects outside) is done when the batch that holds its cause is in. At MAX_PENDING events or
MAX_PENDING_BYTES the partitions stop reading their logs until a commit makes room.

Where another coordinator has taken a partition, its tenure is over: what it decided and what would
have followed is dropped, and the batch is written without it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from hocket.coordinator.core.run.aborting import reason_of
from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.state import Run
from hocket.coordinator.core.time.forecasts import KeptEstimate
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.pending_changes import (
    Dirty,
    Kept,
    Pending,
    Refused,
    batch_of,
    drop_outlook,
)
from hocket.coordinator.storage.refused_runs import find_refusals
from hocket.coordinator.storage.store import Offset, PartitionLost, Store
from hocket.kit.postgres.errors import AWAY, may_be_row_fault
from hocket.kit.process.clock import monotonic_ms
from hocket.kit.process.lifecycle import Health

MAX_PENDING = 20_000
"""Events decided and not yet written."""
MAX_PENDING_BYTES = 256 * 1024 * 1024
"""The size of those events, and of what they made of runs."""
GATHER_MS = 10.0
IDLE_OFFSET_MS = 1_000.0
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
log = structlog.get_logger(__name__)


class Tenure:
    """What one partition decided under one epoch. Made by `Committer.open`."""

    def __init__(
        self,
        committer: "Committer",
        partition: int,
        offset: Offset,
        lost: Callable[[], None],
        refused: Refused,
    ) -> None:
        self.refused = refused
        self.partition = partition
        self.epoch = offset.epoch
        self.over = False
        """Another coordinator has the partition, or this one let go of it."""
        self.pending: Pending | None = None
        self.batches = 0
        self.applying = False
        """An event is half applied: what it changed and the offset behind it are written together."""
        self.passed_over = False
        """The committer came while an event was half applied, and takes what is whole behind it."""
        self.whole: Pending | None = None
        """What was pending when that event was applied: the next one may begin at once, and wait for
        Postgres, so that the committer would never find the partition between two events."""
        self.lost = lost
        self.written = asyncio.Event()
        """Set while nothing is decided that is not written."""
        self.written.set()
        self._offset = offset.applied_seq, offset.applied_msg_id
        self._committer = committer

    def add(
        self,
        run: Run,
        *,
        changed: tuple[str, ...],
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
        pending = self.pending or self._begin()
        dirty = pending.dirty.get(run.run_id)
        if dirty is None:
            dirty = pending.dirty[run.run_id] = Dirty(run)
        dirty.run = run
        dirty.run_changed = dirty.run_changed or run_changed
        dirty.first = dirty.first or first
        dirty.parked_until_ms = parked_until_ms
        dirty.closes = dirty.closes or closes
        if size_bytes > 0 and not self.over:
            pending.size_bytes += size_bytes
            self._committer.grew(0, size_bytes)
        for key in changed:
            dirty.steps[key] = None
        for attempt in attempts:
            identity = (run.run_id, attempt.key, attempt.attempt, attempt.outcome)
            pending.attempts[identity] = (run.run_id, attempt)
        if urgent:
            self._committer.hurry()
        else:
            self._committer.stir()

    def expects(self, kept: list[KeptEstimate]) -> None:
        """Write what the partition expects from now on with the commit of its event."""
        pending = self.pending or self._begin()
        for row in kept:
            pending.outlooks[row.tenant, row.pipeline, row.path] = row.estimate

    def applied(self, seq: int, msg_id: str, size_bytes: int) -> None:
        """Move the partition's offset with the next commit: behind an event of so many bytes."""
        if self.over:
            return
        pending = self.pending or self._begin()
        pending.events += 1
        pending.size_bytes += size_bytes
        pending.seq, pending.msg_id = self._offset = seq, msg_id
        self._committer.grew(1, size_bytes)
        self._committer.some()
        if self.passed_over and self.whole is None:
            self.passed_over = False
            self.whole, self.pending = pending, None
            self._committer.hurry()

    def after(self, action: Callable[[], None], *, run_id: str = "", urgent: bool = False) -> None:
        """Do something after the commit of what was decided until now; with a `run_id` only if that run
        is written as it was decided."""
        (self.pending or self._begin()).after.append((run_id, action))
        if urgent:
            self._committer.hurry()
        else:
            self._committer.stir()

    def told(self, told: NotificationWatermark) -> None:
        """Keep up to when the ends of runs are known to be told."""
        (self.pending or self._begin()).told = told

    async def flushed(self) -> None:
        """Wait until all that was decided is written, or the tenure is over."""
        self._committer.hurry()
        await self.written.wait()

    def end(self) -> None:
        """Drop what is not written; nothing that follows it will be done."""
        self.over = True
        self._committer.close(self)

    def _begin(self) -> Pending:
        pending = Pending(*self._offset)
        if not self.over:
            self.pending = pending
            self.written.clear()
            self._committer.some()
        return pending


class Committer:
    """See the module."""

    def __init__(self, store: Store, health: Health, metrics: CoordinatorMetrics) -> None:
        self._store = store
        self._health = health
        self._metrics = metrics
        self._tenures: dict[int, Tenure] = {}
        self._events = 0
        self._bytes = 0
        self._stirred = asyncio.Event()
        self._urgent = asyncio.Event()
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def open(
        self,
        partition: int,
        offset: Offset,
        *,
        lost: Callable[[], None],
        refused: Refused = lambda run, error, late: None,
    ) -> Tenure:
        """Begin a partition's tenure; `lost` is called when another coordinator has ended it, `refused`
        for a run whose rows Postgres refuses."""
        former = self._tenures.get(partition)
        if former is not None:
            former.end()
        tenure = self._tenures[partition] = Tenure(self, partition, offset, lost, refused)
        return tenure

    def close(self, tenure: Tenure) -> None:
        """Forget a tenure that is over."""
        if self._tenures.get(tenure.partition) is tenure:
            del self._tenures[tenure.partition]
        for part in (tenure.whole, tenure.pending):
            if part is not None:
                self._shrank(part)
        tenure.whole = tenure.pending = None
        tenure.written.set()

    async def room(self) -> None:
        """Wait while too much is decided and not written."""
        if not self._room.is_set():
            await self._room.wait()

    def some(self) -> None:
        """Say that there is something to write."""
        self._some.set()

    def stir(self) -> None:
        """Say that there is more to write than offsets."""
        self._stirred.set()

    def hurry(self) -> None:
        """Write soon: somebody waits for it."""
        self._stirred.set()
        self._urgent.set()

    def grew(self, events: int, size_bytes: int) -> None:
        """Count what was decided; close the room when it is too much."""
        self._events += events
        self._bytes += size_bytes
        if self._events >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES:
            self._room.clear()
            self.hurry()

    async def flushed(self) -> None:
        """Wait until all that was decided is written."""
        for tenure in list(self._tenures.values()):
            await tenure.flushed()

    async def run(self) -> None:
        """Commit for ever."""
        while True:
            await self._some.wait()
            await self._gather()
            for signal in (self._some, self._stirred, self._urgent):
                signal.clear()
            await self._write(self._taken())

    def _taken(self) -> dict[Tenure, Pending]:
        taken = {}
        for tenure in self._tenures.values():
            if tenure.whole is not None:
                part, tenure.whole = tenure.whole, None
            elif tenure.pending is not None and not tenure.applying:
                part, tenure.pending = tenure.pending, None
            else:
                tenure.passed_over = tenure.pending is not None
                continue
            tenure.batches = part.number = tenure.batches + 1
            taken[tenure] = part
            if tenure.pending is not None:  # who hurried meant what came later, too
                self.some()
                self.hurry()
        return taken

    async def _gather(self) -> None:
        await _within(IDLE_OFFSET_MS, self._stirred)
        await _within(GATHER_MS, self._urgent)

    async def _write(self, parts: dict[Tenure, Pending]) -> None:
        """Write parts of one batch and do what follows; leave out those whose tenure is over."""
        taken = list(parts.values())
        pause_s = FIRST_PAUSE_S
        while parts := {tenure: part for tenure, part in parts.items() if not tenure.over}:
            begun_ms = monotonic_ms()
            try:
                await self._commit(parts)
            except PartitionLost as error:
                self._lost(parts, error)
            except Exception as error:
                reason = reason_of(error)
                self._health.report("postgres", False, reason)
                away = isinstance(error, AWAY)
                (log.warning if away else log.error)(
                    "commit_waits" if away else "commit_refused",
                    reason=reason,
                    events=self._events,
                )
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
            else:
                self._health.report("postgres", True)
                events = sum(part.events for part in parts.values())
                self._metrics.committed(events, monotonic_ms() - begun_ms)
                break
        for part in taken:
            self._shrank(part)
        for tenure, part in parts.items():
            for _, action in part.after:
                _follow(action)
            if tenure.pending is None and tenure.whole is None:
                tenure.written.set()

    async def _commit(self, parts: Mapping[Tenure, Pending]) -> None:
        """Write parts of one batch, without the rows that Postgres refuses. Raises PartitionLost, what
        says that Postgres is away, and what it refuses a batch for that is of no run."""
        by_partition = {tenure.partition: tenure for tenure in parts}
        while True:
            batch, unmade = batch_of(parts)
            if unmade:
                for tenure, run_id, fault in unmade:
                    self._set_aside(tenure, parts[tenure], run_id, fault)
                continue
            try:
                await self._store.commit(batch)
                return
            except PartitionLost:
                raise
            except Exception as error:
                if not may_be_row_fault(error):
                    raise
                log.error("batch_refused", reason=reason_of(error), size=batch.size_chars)
                found = await find_refusals(self._store, batch)
                if found.whole is not None:
                    raise found.whole from error
                if not found.by_key:
                    await self._store.commit(batch, max_chars=0)  # each row by itself
                    return
            runs = {run_id: tenure for tenure in parts for run_id in parts[tenure].dirty}
            for key, refusal in found.by_key.items():
                if isinstance(key, str):
                    self._set_aside(runs[key], parts[runs[key]], key, refusal)
                else:
                    partition, tenant, pipeline = key
                    drop_outlook(parts[by_partition[partition]], tenant, pipeline, refusal)

    def _set_aside(self, tenure: Tenure, part: Pending, run_id: str, error: Exception) -> None:
        """Write less of a run than before: first what it came to when it was ended for being refused."""
        dirty = part.dirty[run_id]
        before = part.aside.get(run_id)
        log.error("run_refused_by_postgres", run_id=run_id, reason=reason_of(error), kept=before)
        if before is not None:
            part.aside[run_id] = Kept(before + 1)
            return
        late = dirty.run.ended and not dirty.run_changed
        try:
            ended = tenure.refused(dirty.run, error, late)
        except Exception:  # it cannot even be ended; its rows are no reason to stop the others'
            log.exception("run_not_ended", run_id=run_id)
            ended = None
        if late or ended is None:
            part.aside[run_id] = Kept.NOTHING
            return
        part.aside[run_id] = Kept.BARE
        for other in (tenure.whole, tenure.pending):
            if other is not None and run_id in other.dirty:
                dirty.steps |= other.dirty[run_id].steps
                other.forget(run_id)
        part.after = [one for one in part.after if one[0] != run_id]
        part.after.append((run_id, ended.follows))
        dirty.run, dirty.run_changed, dirty.parked_until_ms = ended.run, True, None
        dirty.steps |= dict.fromkeys(ended.changed)

    def _lost(self, parts: Iterable[Tenure], error: PartitionLost) -> None:
        partition, epoch = error.fields["partition"], error.fields["epoch"]
        for tenure in parts:
            if (tenure.partition, tenure.epoch) == (partition, epoch):
                log.warning("partition_lost", partition=partition, epoch=epoch)
                tenure.end()
                tenure.lost()

    def _shrank(self, part: Pending) -> None:
        self._events -= part.events
        self._bytes -= part.size_bytes
        if self._events < MAX_PENDING and self._bytes < MAX_PENDING_BYTES:
            self._room.set()


async def _within(bound_ms: float, event: asyncio.Event) -> None:
    """Wait for an event, or until the bound has passed."""
    if event.is_set():
        return
    try:
        async with asyncio.timeout(bound_ms / 1000):
            await event.wait()
    except TimeoutError:
        return


def _follow(action: Callable[[], None]) -> None:
    """Do what follows a commit; what fails of it is its run's, and the others are told all the same."""
    try:
        action()
    except Exception:
        log.exception("after_commit_failed")
