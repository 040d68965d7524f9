"""One committer per process: gathers what the partitions decided and writes it batch by batch.

States: idle, gathering (a run that ended is written at once, the rest within GATHER_MS), writing,
waiting (Postgres is away: the batch is kept and tried again). What must come after a commit (replies,
acks, steps with effects outside) is done when the batch that holds its cause is in. At MAX_PENDING
events the partitions stop reading their logs until a commit makes room.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import asyncpg
import structlog

from hocket.coordinator.core.commands import RecordAttempt
from hocket.coordinator.core.deadlines import Estimate
from hocket.coordinator.core.outlooks import KeptEstimate
from hocket.coordinator.core.records import attempt_row, run_row, step_row
from hocket.coordinator.core.state import Run
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.store import Batch, Store
from hocket.kit.clock import monotonic_ms
from hocket.kit.lifecycle import Health

MAX_PENDING = 20_000
"""Events decided and not yet written."""
GATHER_MS = 10.0
IDLE_OFFSET_MS = 1_000.0
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
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


@dataclass(slots=True)
class _Pending:
    """What the next commit writes, and what follows it."""

    dirty: dict[str, _Dirty] = field(default_factory=dict)
    attempts: dict[tuple[str, str, int, str], tuple[str, RecordAttempt]] = field(
        default_factory=dict
    )
    offsets: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    outlooks: dict[tuple[int, str, str, str], Estimate] = field(default_factory=dict)
    after: list[Callable[[], None]] = field(default_factory=list)
    events: int = 0


class Committer:
    """See the module."""

    def __init__(self, store: Store, health: Health, metrics: CoordinatorMetrics) -> None:
        self._store = store
        self._health = health
        self._metrics = metrics
        self._pending = _Pending()
        self._writing = 0
        self._urgent = asyncio.Event()
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def room(self) -> None:
        """Wait while too much is decided and not written."""
        if not self._room.is_set():
            await self._room.wait()

    def add(
        self,
        run: Run,
        *,
        changed: tuple[str, ...],
        run_changed: bool,
        first: bool,
        attempts: list[RecordAttempt],
        urgent: bool,
    ) -> None:
        """Write a run's new state with the next commit; `first` for a run that was accepted now."""
        pending = self._pending
        dirty = pending.dirty.get(run.run_id)
        if dirty is None:
            dirty = pending.dirty[run.run_id] = _Dirty(run)
        dirty.run = run
        dirty.run_changed = dirty.run_changed or run_changed
        dirty.first = dirty.first or first
        for key in changed:
            dirty.steps[key] = None
        for attempt in attempts:
            identity = (run.run_id, attempt.key, attempt.attempt, attempt.outcome)
            pending.attempts[identity] = (run.run_id, attempt)
        self._some.set()
        self._idle.clear()
        if urgent:
            self._urgent.set()

    def expects(self, partition: int, kept: list[KeptEstimate]) -> None:
        """Write what a partition expects from now on with the commit of its event."""
        for row in kept:
            key = (partition, row.tenant, row.pipeline, row.path)
            self._pending.outlooks[key] = row.estimate

    def applied(self, partition: int, epoch: int, seq: int, msg_id: str) -> None:
        """Move a partition's offset with the next commit."""
        self._pending.offsets[partition] = (epoch, seq, msg_id)
        self._pending.events += 1
        if self._pending.events + self._writing >= MAX_PENDING:
            self._room.clear()
            self._urgent.set()
        self._some.set()
        self._idle.clear()

    def after(self, action: Callable[[], None], *, urgent: bool = False) -> None:
        """Do something after the commit of what was decided until now."""
        self._pending.after.append(action)
        self._some.set()
        self._idle.clear()
        if urgent:
            self._urgent.set()

    async def flushed(self) -> None:
        """Wait until all that was decided is written."""
        self._urgent.set()
        await self._idle.wait()

    async def run(self) -> None:
        """Commit for ever; raises PartitionLost where another owner has come."""
        while True:
            await self._some.wait()
            await self._gather()
            pending, self._pending = self._pending, _Pending()
            self._some.clear()
            self._urgent.clear()
            self._writing = pending.events
            await self._write(pending)
            self._writing = 0
            self._room.set()
            for action in pending.after:
                action()
            if not self._some.is_set():
                self._idle.set()

    async def _gather(self) -> None:
        quiet = not self._pending.dirty and not self._pending.after
        wait_ms = IDLE_OFFSET_MS if quiet else GATHER_MS
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._urgent.wait()
        except TimeoutError:
            return

    async def _write(self, pending: _Pending) -> None:
        batch = _batch_of(pending)
        pause_s = FIRST_PAUSE_S
        while True:
            begun_ms = monotonic_ms()
            try:
                await self._store.commit(batch)
            except AWAY as error:
                reason = str(error) or type(error).__name__
                self._health.report("postgres", False, reason)
                log.warning("commit_waits", reason=reason, events=pending.events)
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
                continue
            self._health.report("postgres", True)
            self._metrics.committed(pending.events, monotonic_ms() - begun_ms)
            return


def _batch_of(pending: _Pending) -> Batch:
    batch = Batch(offsets=pending.offsets)
    for run_id, dirty in pending.dirty.items():
        if dirty.run_changed:
            batch.runs.append(run_row(dirty.run, first=dirty.first))
        batch.steps += [step_row(run_id, dirty.run.steps[key]) for key in dirty.steps]
    batch.outlooks = [
        (*key, estimate.weight, estimate.mean_ms, estimate.variance)
        for key, estimate in pending.outlooks.items()
    ]
    batch.attempts = [attempt_row(run_id, a) for run_id, a in pending.attempts.values()]
    return batch
