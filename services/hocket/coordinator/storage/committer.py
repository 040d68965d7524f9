"""One committer per process: gathers what the partitions decide and writes it batch by batch. Under
load a batch holds only some of the partitions (MANY_RUNS), in turn: what a partition decides about a run
until its next turn is written once, and the callers of the others' runs do not wait for it.

States: idle, gathering (`commit_schedule.py`), writing, waiting (Postgres is away: the batch is
kept and tried again), setting aside (Postgres refuses the batch: `refused_runs.py` finds the runs
that cause it, these end with an error, and the others are written). What must come after a commit
(replies, acks, steps with effects outside) is done once the batch that holds its cause is written.

If another coordinator has taken a partition, its tenure is over (`tenure.py`), and the batch is
written without it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.commit_schedule import CommitSchedule
from hocket.coordinator.storage.pending_changes import (
    Kept,
    Pending,
    Refused,
    batch_of,
    drop_outlook,
)
from hocket.coordinator.storage.refused_runs import Refusals, find_refusals
from hocket.coordinator.storage.store import Offset, PartitionLost, Store
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.logs.run_lines import of_run
from hocket.kit.postgres.errors import AWAY, may_be_row_fault
from hocket.kit.process.clock import monotonic_ms
from hocket.kit.process.lifecycle import Health

MANY_RUNS = 64
"""Runs in a batch from which on no further partition is added to it."""
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
FOLLOWED_AT_ONCE = 200
"""How many actions follow a commit before everything else has its turn: after an outage of Postgres,
twenty thousand events are written at once."""
log = structlog.get_logger(__name__)

Parts = Mapping[Tenure, Pending]
Written = Callable[[list[tuple[int, Pending]]], None]


class Committer:
    """Writes what the partitions of this coordinator decide. `written` is called with each batch,
    by partition, before its follow-up actions; `touched` with the queues in which runs wait to
    start, or may start now."""

    def __init__(
        self,
        store: Store,
        health: Health,
        metrics: CoordinatorMetrics,
        written: Written = lambda parts: None,
        touched: Callable[[Sequence[FlowQueue]], None] = lambda queues: None,
    ) -> None:
        self._store = store
        self._health = health
        self._metrics = metrics
        self._written = written
        self._touched = touched
        self._schedule = CommitSchedule()
        self._tenures: dict[int, Tenure] = {}

    def open(
        self,
        partition: int,
        offset: Offset,
        *,
        lost: Callable[[], None],
        refused: Refused = lambda run, error, late: None,
    ) -> Tenure:
        """Begin a partition's tenure. `lost` is called when another coordinator has ended it,
        `refused` for a run whose rows Postgres refuses."""
        former = self._tenures.get(partition)
        if former is not None:
            former.end()
        tenure = self._tenures[partition] = Tenure(
            self._schedule, partition, offset, lost=lost, refused=refused, ended=self._forget
        )
        return tenure

    def _forget(self, tenure: Tenure) -> None:
        if self._tenures.get(tenure.partition) is tenure:
            del self._tenures[tenure.partition]

    async def wait_for_capacity(self) -> None:
        """Wait while too much is decided but not written."""
        await self._schedule.wait_for_capacity()

    async def flush(self) -> None:
        """Wait until everything that was decided is written."""
        for tenure in list(self._tenures.values()):
            await tenure.flush()

    async def run(self) -> None:
        """Commit batches; never returns."""
        while True:
            await self._schedule.wait_for_batch()
            await self._write(self._take())

    def _take(self) -> dict[Tenure, Pending]:
        taken = {}
        runs = 0
        for partition, tenure in list(self._tenures.items()):
            if runs >= MANY_RUNS:
                self._write_again()
                break
            part = tenure.unwritten.take()
            if part is None:
                continue
            taken[tenure] = part
            runs += len(part.dirty)
            if tenure.unwritten.has_more:  # the flush was meant for the later part, too
                self._write_again()
            self._tenures[partition] = self._tenures.pop(partition)  # the others come before it now
        return taken

    def _write_again(self) -> None:
        """Have the next batch written at once."""
        self._schedule.notify()
        self._schedule.request_flush()

    async def _write(self, taken: dict[Tenure, Pending]) -> None:
        """Write the parts of one batch and do what follows; parts whose tenure is over are left out."""
        parts = await self._write_until_in(taken)
        for part in taken.values():
            self._schedule.shrank(part.events, part.size_bytes)
        _follow(lambda: self._written([(one.partition, parts[one]) for one in parts]))
        for tenure, part in parts.items():
            for count, (_, action) in enumerate(part.after, 1):
                _follow(action)
                if count % FOLLOWED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            tenure.wrote(part)

    async def _write_until_in(self, parts: Parts) -> Parts:
        """Write the parts of one batch, however long it takes; return those that were written."""
        pause_s = FIRST_PAUSE_S
        while parts := {tenure: part for tenure, part in parts.items() if not tenure.over}:
            begun_ms = monotonic_ms()
            try:
                await self._commit(parts)
            except PartitionLost as lost:
                _lose(parts, lost)
                continue
            except Exception as error:
                self._waits(error)
            else:
                self._health.report("postgres", True)
                events = sum(part.events for part in parts.values())
                self._metrics.committed(events, monotonic_ms() - begun_ms)
                break
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)
        return parts

    def _waits(self, error: Exception) -> None:
        reason = reason_of(error)
        self._health.report("postgres", False, reason)
        away = isinstance(error, AWAY)
        (log.warning if away else log.error)(
            "commit_waits" if away else "commit_refused",
            reason=reason,
            events=self._schedule.events,
        )

    async def _commit(self, parts: Parts) -> None:
        """Write the parts of one batch, without the rows that Postgres refuses. Raises
        PartitionLost, any error that means that Postgres is away, and the reason for which a batch
        is refused that is not due to a run."""
        while True:
            batch, unmade = batch_of(parts)
            for tenure, run_id, fault in unmade:
                _set_aside(tenure, parts[tenure], run_id, fault)
            if unmade:
                continue
            try:
                self._moved(await self._store.commit(batch))
                return
            except PartitionLost:
                raise
            except Exception as error:
                if not may_be_row_fault(error):
                    raise
                refusal = error
            found = await self._refusals(batch, refusal)
            if not found.by_key:
                self._moved(await self._store.commit(batch, max_chars=0))  # each row by itself
                return
            _set_all_aside(parts, found)

    def _moved(self, queues: Sequence[FlowQueue]) -> None:
        if queues:
            self._touched(queues)

    async def _refusals(self, batch: Batch, error: Exception) -> Refusals:
        """Find what is refused in a batch; raise the reason if it is refused as a whole."""
        log.error("batch_refused", reason=reason_of(error), size=batch.size_chars)
        found = await find_refusals(self._store, batch)
        if found.whole is not None:
            raise found.whole from error
        return found


def _set_all_aside(parts: Parts, found: Refusals) -> None:
    by_partition = {tenure.partition: part for tenure, part in parts.items()}
    runs = {run_id: tenure for tenure, part in parts.items() for run_id in part.dirty}
    for key, refusal in found.by_key.items():
        if isinstance(key, str):
            _set_aside(runs[key], parts[runs[key]], key, refusal)
        else:
            partition, tenant, pipeline = key
            drop_outlook(by_partition[partition], tenant, pipeline, refusal)


def _set_aside(tenure: Tenure, part: Pending, run_id: str, error: Exception) -> None:
    """Write less of a run than before: first, what it became when it was ended because of the
    refusal."""
    dirty = part.dirty[run_id]
    before = part.aside.get(run_id)
    of = of_run(run_id, dirty.run.traceparent)
    log.error("run_refused_by_postgres", **of, reason=reason_of(error), kept=before)
    if before is not None:
        part.aside[run_id] = Kept(before + 1)
        return
    late = dirty.had_ended and not dirty.run_changed
    try:
        ended = tenure.refused(dirty.run, error, late)
    except Exception:  # it cannot be ended either; its rows must not stop those of others
        log.exception("run_not_ended", **of)
        ended = None
    if late or ended is None:
        part.aside[run_id] = Kept.NOTHING
        return
    part.aside[run_id] = Kept.BARE
    for later in tenure.unwritten.withdraw(run_id):
        dirty.steps |= later.steps
        dirty.spending |= later.spending
    part.after = [one for one in part.after if one[0] != run_id]
    part.after.append((run_id, ended.follows))
    dirty.run = ended.run
    dirty.steps |= dict.fromkeys(step.key for step in ended.changed)


def _lose(parts: Iterable[Tenure], error: PartitionLost) -> None:
    """End the tenure of the partition that another coordinator has taken."""
    partition, epoch = error.fields["partition"], error.fields["epoch"]
    for tenure in parts:
        if (tenure.partition, tenure.epoch) == (partition, epoch):
            log.warning("partition_lost", partition=partition, epoch=epoch)
            tenure.end()
            tenure.lost()


def _follow(action: Callable[[], None]) -> None:
    """Do what follows a commit; a failure concerns one run, and must not keep others from being
    announced."""
    try:
        action()
    except Exception:
        log.exception("after_commit_failed")
