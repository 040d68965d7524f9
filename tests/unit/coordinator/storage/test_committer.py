"""The committer: what is written together, what follows, and what another owner's epoch does to it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage import commit_schedule
from hocket.coordinator.storage import committer as module
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.store import Offset, PartitionLost
from hocket.coordinator.storage.tenure import Tenure
from hocket.kit.process.lifecycle import Health
from support.run_player import Play, python

BOUND_S = 60


class Epochs:
    """Stands for the store: refuses what comes with an old epoch, and can be away."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.batches: list[Batch] = []
        self.away = asyncio.Event()
        self.asked = asyncio.Event()
        self.failures: list[Exception] = []

    async def commit(self, batch: Batch) -> None:
        self.asked.set()
        if self.failures:
            raise self.failures.pop()
        if self.away.is_set():
            raise ConnectionRefusedError("no database")
        for partition, (epoch, _, _) in sorted(batch.offsets.items()):
            if self.now.get(partition, 1) != epoch:
                raise PartitionLost(partition=partition, epoch=epoch)
        self.batches.append(batch)


@pytest.fixture
def epochs() -> Epochs:
    return Epochs()


@pytest.fixture
async def committer(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Committer]:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    metrics = CoordinatorMetrics(CollectorRegistry())
    committer = Committer(epochs, Health(), metrics)  # type: ignore[arg-type]
    running = asyncio.create_task(committer.run())
    yield committer
    running.cancel()
    await asyncio.wait({running})


def tenure(committer: Committer, partition: int, lost: Any = lambda: None) -> Tenure:
    return committer.open(partition, Offset(1, 0, ""), lost=lost)


def add(to: Tenure, run_id: str) -> None:
    play = Play({"a": python()}, run_id=run_id)
    to.add(
        play.run,
        changed=play.run.steps.values(),
        run_changed=True,
        first=True,
        attempts=[],
        urgent=False,
    )


def run_ids(batches: list[Batch]) -> list[str]:
    return [row[0] for batch in batches for row in batch.runs]


async def flushed(one: Tenure) -> None:
    await asyncio.wait_for(one.flush(), BOUND_S)


async def test_state_and_offset_are_written_together_and_then_what_follows(
    committer: Committer, epochs: Epochs
) -> None:
    one, done = tenure(committer, 0), []
    add(one, "r1")
    one.after_commit(lambda: done.append(len(epochs.batches)))
    one.applied(7, "id", 100)
    await flushed(one)
    (batch,) = epochs.batches
    assert (run_ids([batch]), batch.offsets) == (["r1"], {0: (1, 7, "id")})
    assert done == [1]


async def test_under_load_the_partitions_are_written_in_turn(
    committer: Committer, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MANY_RUNS", 2)
    many, other = tenure(committer, 0), tenure(committer, 1)
    for number in range(3):
        add(many, f"m{number}")
    add(other, "o")
    many.applied(3, "id", 100)
    other.applied(4, "id", 100)
    await asyncio.gather(flushed(many), flushed(other))
    add(many, "m3")
    add(many, "m4")
    add(other, "o2")
    await asyncio.gather(flushed(many), flushed(other))
    written = [sorted(row[0] for row in batch.runs) for batch in epochs.batches if batch.runs]
    assert written == [["m0", "m1", "m2"], ["o"], ["m3", "m4"], ["o2"]]


async def test_a_lost_partition_is_left_out_and_the_others_are_written(
    committer: Committer, epochs: Epochs
) -> None:
    told: list[str] = []
    mine = tenure(committer, 0)
    lost = tenure(committer, 1, lost=lambda: told.append("lost"))
    epochs.now[1] = 2
    for one, run_id in ((mine, "mine"), (lost, "theirs")):
        add(one, run_id)
        one.after_commit(lambda run_id=run_id: told.append(run_id))  # type: ignore[misc]
        one.applied(7, "id", 100)
    await flushed(mine)
    await flushed(lost)
    assert run_ids(epochs.batches) == ["mine"]
    assert told == ["lost", "mine"]
    assert lost.over


async def test_what_a_tenure_that_is_over_decides_goes_nowhere(
    committer: Committer, epochs: Epochs
) -> None:
    one = tenure(committer, 0)
    one.end()
    add(one, "late")
    one.after_commit(lambda: pytest.fail("it follows nothing"))
    one.applied(7, "id", commit_schedule.MAX_PENDING_BYTES)
    await asyncio.wait_for(committer.wait_for_capacity(), BOUND_S)
    other = tenure(committer, 1)
    add(other, "r2")
    await flushed(other)
    assert run_ids(epochs.batches) == ["r2"]


async def test_an_event_that_is_half_applied_is_not_written(
    committer: Committer, epochs: Epochs
) -> None:
    half, other = tenure(committer, 0), tenure(committer, 1)
    half.unwritten.begin_event()
    add(half, "half")
    add(other, "other")
    await flushed(other)
    assert run_ids(epochs.batches) == ["other"]
    half.unwritten.end_event()
    half.applied(1, "id", 10)
    await flushed(half)
    assert epochs.batches[-1].offsets == {0: (1, 1, "id")}
    assert run_ids(epochs.batches) == ["other", "half"]


async def test_what_an_event_that_is_broken_off_decided_is_written_though_nothing_comes_after_it(
    committer: Committer, epochs: Epochs
) -> None:
    """It was waiting for NATS, which broke off, and lost it."""
    half, other, written = tenure(committer, 0), tenure(committer, 1), asyncio.Event()
    half.unwritten.begin_event()
    add(half, "given up")
    half.after_commit(written.set)
    add(other, "other")
    await flushed(other)  # and the half event was passed over
    half.break_off()
    await asyncio.wait_for(written.wait(), BOUND_S)
    assert run_ids(epochs.batches) == ["other", "given up"]
    assert epochs.batches[-1].offsets == {0: (1, 0, "")}


async def test_a_partition_that_always_applies_an_event_is_written_up_to_the_one_before(
    committer: Committer, epochs: Epochs
) -> None:
    busy, other, written = tenure(committer, 0), tenure(committer, 1), asyncio.Event()
    busy.unwritten.begin_event()
    add(busy, "r1")
    add(other, "other")
    await flushed(other)  # and the busy one was passed over
    busy.after_commit(written.set)
    busy.applied(1, "first", 10)
    add(busy, "r2")  # the next event began in the same turn of the loop
    await asyncio.wait_for(written.wait(), BOUND_S)
    assert run_ids(epochs.batches) == ["other", "r1"]
    assert epochs.batches[-1].offsets == {0: (1, 1, "first")}
    busy.applied(2, "second", 10)
    await flushed(busy)
    assert run_ids(epochs.batches) == ["other", "r1", "r2"]


async def test_the_batch_waits_while_postgres_is_away_and_its_offset_stays_what_it_was(
    committer: Committer, epochs: Epochs
) -> None:
    one = tenure(committer, 0)
    epochs.away.set()
    add(one, "r1")
    one.applied(1, "first", 10)
    await asyncio.wait_for(epochs.asked.wait(), BOUND_S)
    add(one, "r2")
    one.applied(2, "second", 10)
    epochs.away.clear()
    await flushed(one)
    assert [batch.offsets for batch in epochs.batches] == [
        {0: (1, 1, "first")},
        {0: (1, 2, "second")},
    ]
    assert run_ids(epochs.batches) == ["r1", "r2"]


async def test_a_flush_ends_although_the_partition_goes_on_deciding(
    committer: Committer, epochs: Epochs
) -> None:
    one = tenure(committer, 0)
    number = 0

    def decide() -> None:
        nonlocal number
        number += 1
        add(one, f"r{number}")
        one.applied(number, f"m{number}", 10)
        one.after_commit(decide)  # before the committer is done with the part

    decide()
    await flushed(one)
    assert run_ids(epochs.batches)[0] == "r1"
    assert number > 1, "something is always left"


async def test_a_flush_ends_with_the_tenure(committer: Committer, epochs: Epochs) -> None:
    one = tenure(committer, 0)
    epochs.away.set()
    add(one, "r1")
    one.applied(1, "first", 10)
    flushing = asyncio.create_task(flushed(one))
    await asyncio.wait_for(epochs.asked.wait(), BOUND_S)
    one.end()
    await flushing
    await flushed(one)


async def test_the_batch_waits_whatever_is_left_of_the_connections_of_a_killed_postgres(
    committer: Committer, epochs: Epochs
) -> None:
    epochs.failures = [
        asyncpg.InternalClientError("cannot switch to state 12; another operation is in progress"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        TimeoutError(),
    ]
    one = tenure(committer, 0)
    add(one, "r1")
    one.applied(7, "m7", 10)
    async with asyncio.timeout(BOUND_S):
        await one.flush()
    assert [batch.offsets[0][1] for batch in epochs.batches] == [7]


@pytest.mark.parametrize(
    ("events", "size_bytes"),
    [(commit_schedule.MAX_PENDING, 1), (1, commit_schedule.MAX_PENDING_BYTES)],
)
async def test_the_room_is_closed_by_too_many_events_or_bytes_and_opens_with_their_commit(
    committer: Committer, epochs: Epochs, events: int, size_bytes: int
) -> None:
    one = tenure(committer, 0)
    epochs.away.set()
    for seq in range(events):
        one.applied(seq, "id", size_bytes)
    waiting = asyncio.create_task(committer.wait_for_capacity())
    await asyncio.wait_for(epochs.asked.wait(), BOUND_S)
    assert not waiting.done()
    epochs.away.clear()
    await asyncio.wait_for(waiting, BOUND_S)


async def test_leaving_with_something_unwritten_makes_room(
    committer: Committer, epochs: Epochs
) -> None:
    one = tenure(committer, 0)
    epochs.away.set()
    one.applied(1, "id", commit_schedule.MAX_PENDING_BYTES)
    waiting = asyncio.create_task(committer.wait_for_capacity())
    await asyncio.wait_for(epochs.asked.wait(), BOUND_S)
    one.end()
    epochs.away.clear()
    await asyncio.wait_for(waiting, BOUND_S)
    assert epochs.batches == []


async def test_what_follows_a_large_commit_leaves_turns_to_everything_else(
    committer: Committer, epochs: Epochs
) -> None:
    one, done, turns = tenure(committer, 0), 0, [0]

    def follow() -> None:
        nonlocal done
        done += 1

    async def beat() -> None:
        while True:
            turns.append(done)
            await asyncio.sleep(0)

    count = 5 * module.FOLLOWED_AT_ONCE + 1
    add(one, "r1")
    for _ in range(count):
        one.after_commit(follow)
    beating = asyncio.create_task(beat())
    await flushed(one)
    assert done == count  # nobody who waited for it goes on before
    beating.cancel()
    most = max(after - before for before, after in pairwise([*turns, done]))
    assert most <= module.FOLLOWED_AT_ONCE
