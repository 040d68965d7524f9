"""One committer per process: gathers what the partitions decided and writes it batch by batch.

A partition that is owned has a tenure here: what it decided under its epoch and what follows. States
of the committer: idle, gathering (a run that ended is written at once, other state within GATHER_MS,
mere offsets within IDLE_OFFSET_MS), writing, waiting (Postgres is away: the batch is kept and tried
again). What must come after a commit (replies, acks, steps with effects outside) is done when the
batch that holds its cause is in. At MAX_PENDING events or MAX_PENDING_BYTES the partitions stop
reading their logs until a commit makes room.

Where another coordinator has taken a partition, its tenure is over: what it decided and what would
have followed is dropped, and the batch is written without it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import asyncpg
import structlog

from hocket.coordinator.core.commands import RecordAttempt
from hocket.coordinator.core.deadlines import Estimate
from hocket.coordinator.core.outlooks import KeptEstimate
from hocket.coordinator.core.records import attempt_row, run_row, step_row
from hocket.coordinator.core.state import Run
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.store import Batch, Offset, PartitionLost, Store
from hocket.coordinator.untold import Told
from hocket.kit.clock import monotonic_ms
from hocket.kit.lifecycle import Health

MAX_PENDING = 20_000
"""Events decided and not yet written."""
MAX_PENDING_BYTES = 256 * 1024 * 1024
"""The size of those events; what they changed is of the same order."""
GATHER_MS = 10.0
IDLE_OFFSET_MS = 1_000.0
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what is left of a connection whose server was killed
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Dirty:
    run: Run
    steps: dict[str, None] = field(default_factory=dict)
    run_changed: bool = False
    first: bool = False
    """Its row is not in Postgres yet, as far as we know."""
    parked_until_ms: float | None = None


@dataclass(slots=True)
class _Pending:
    """What the next commit writes of a partition, up to which message of its log, and what follows."""

    seq: int
    msg_id: str
    number: int = 0
    """Which batch of its tenure it goes with."""
    dirty: dict[str, _Dirty] = field(default_factory=dict)
    attempts: dict[tuple[str, str, int, str], tuple[str, RecordAttempt]] = field(
        default_factory=dict
    )
    told: Told | None = None
    outlooks: dict[tuple[str, str, str], Estimate] = field(default_factory=dict)
    after: list[Callable[[], None]] = field(default_factory=list)
    events: int = 0
    size_bytes: int = 0


class Tenure:
    """What one partition decided under one epoch. Made by `Committer.open`."""

    def __init__(
        self, committer: "Committer", partition: int, offset: Offset, lost: Callable[[], None]
    ) -> None:
        self.partition = partition
        self.epoch = offset.epoch
        self.over = False
        """Another coordinator has the partition, or this one let go of it."""
        self.pending: _Pending | None = None
        self.batches = 0
        self.applying = False
        """An event is half applied: what it changed and the offset behind it are written together."""
        self.passed_over = False
        """The committer came while an event was half applied, and takes what is whole behind it."""
        self.whole: _Pending | None = None
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
    ) -> None:
        """Write a run's new state with the next commit; `first` for a run that was accepted now,
        `parked_until_ms` for one that leaves the memory."""
        pending = self.pending or self._begin()
        dirty = pending.dirty.get(run.run_id)
        if dirty is None:
            dirty = pending.dirty[run.run_id] = _Dirty(run)
        dirty.run = run
        dirty.run_changed = dirty.run_changed or run_changed
        dirty.first = dirty.first or first
        dirty.parked_until_ms = parked_until_ms
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

    def after(self, action: Callable[[], None], *, urgent: bool = False) -> None:
        """Do something after the commit of what was decided until now."""
        (self.pending or self._begin()).after.append(action)
        if urgent:
            self._committer.hurry()
        else:
            self._committer.stir()

    def told(self, told: Told) -> None:
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

    def _begin(self) -> _Pending:
        pending = _Pending(*self._offset)
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

    def open(self, partition: int, offset: Offset, *, lost: Callable[[], None]) -> Tenure:
        """Begin a partition's tenure; `lost` is called when another coordinator has ended it."""
        former = self._tenures.get(partition)
        if former is not None:
            former.end()
        tenure = self._tenures[partition] = Tenure(self, partition, offset, lost)
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

    def _taken(self) -> dict[Tenure, _Pending]:
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

    async def _write(self, parts: dict[Tenure, _Pending]) -> None:
        """Write parts of one batch and do what follows; leave out those whose tenure is over."""
        taken = list(parts.values())
        pause_s = FIRST_PAUSE_S
        while parts := {tenure: part for tenure, part in parts.items() if not tenure.over}:
            begun_ms = monotonic_ms()
            try:
                await self._store.commit(_batch_of(parts))
            except PartitionLost as error:
                self._lost(parts, error)
            except AWAY as error:
                reason = str(error) or type(error).__name__
                self._health.report("postgres", False, reason)
                log.warning("commit_waits", reason=reason, events=self._events)
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
            for action in part.after:
                action()
            if tenure.pending is None and tenure.whole is None:
                tenure.written.set()

    def _lost(self, parts: Iterable[Tenure], error: PartitionLost) -> None:
        partition, epoch = error.fields["partition"], error.fields["epoch"]
        for tenure in parts:
            if (tenure.partition, tenure.epoch) == (partition, epoch):
                log.warning("partition_lost", partition=partition, epoch=epoch)
                tenure.end()
                tenure.lost()

    def _shrank(self, part: _Pending) -> None:
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


def _batch_of(parts: Mapping[Tenure, _Pending]) -> Batch:
    batch = Batch()
    for tenure, part in parts.items():
        number = tenure.partition
        batch.offsets[number] = (tenure.epoch, part.seq, part.msg_id)
        batch.numbers[number] = part.number
        if part.told is not None:
            batch.told[number] = part.told
        for run_id, dirty in part.dirty.items():
            if dirty.run_changed:
                batch.runs.append(
                    run_row(dirty.run, first=dirty.first, parked_until_ms=dirty.parked_until_ms)
                )
            batch.steps += [step_row(run_id, dirty.run.steps[key]) for key in dirty.steps]
        batch.outlooks += [
            (number, *key, estimate.weight, estimate.mean_ms, estimate.variance)
            for key, estimate in part.outlooks.items()
        ]
        batch.attempts += [attempt_row(run_id, a) for run_id, a in part.attempts.values()]
    return batch
