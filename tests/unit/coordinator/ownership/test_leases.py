"""What becomes of leases that their bucket loses: NATS came back without the end of its store."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.scheduling.lease_records import MEMBER, PARTITION
from hocket.coordinator.ownership import leases
from hocket.coordinator.ownership.leases import Ownership
from hocket.kit.nats.kv.entry import Entry, RevisionPassed
from hocket.kit.process.lifecycle import Health

BOUND_S = 30.0
LEASE = PARTITION + "0"


class Bucket:
    """A bucket that tells every change at once."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.written = asyncio.Event()
        self.current_since_s = 0.0
        self.entries: dict[str, Entry] = {}
        self._revision = 10

    async def put(
        self, key: str, value: bytes | None, *, revision: int | None, timeout_ms: float
    ) -> int:
        known = self.entries.get(key)
        if revision is not None and revision != (known.revision if known else 0):
            raise RevisionPassed(key=key)
        self._revision += 1
        self.write(key, value, self._revision)
        return self._revision

    def write(self, key: str, value: bytes | None, revision: int, *, ago_s: float = 0.0) -> None:
        at_s = asyncio.get_running_loop().time() - ago_s
        self.entries[key] = Entry(key, value, revision, at_s)
        self.changed.set()
        self.written.set()

    def overwrite(self, key: str, *, known: bool) -> None:
        """Something foreign is written; only a watch from before knows the value that it hides."""
        now_s, before = asyncio.get_running_loop().time(), self.entries.get(key)
        self._revision += 1
        value = before.value if known and before is not None else None
        self.entries[key] = Entry(key, value, self._revision, now_s, overwritten_at_s=now_s)
        self.changed.set()

    def came_back(self) -> None:
        """Its watch began anew, with what it holds now."""
        self.current_since_s = asyncio.get_running_loop().time()
        self.changed.set()

    def owner(self) -> str:
        entry = self.entries.get(LEASE)
        return "" if entry is None else json.loads(entry.value or b"{}").get("owner", "")


def lease(owner: str, incarnation: str) -> bytes:
    return json.dumps({"owner": owner, "incarnation": incarnation}).encode()


@asynccontextmanager
async def owning(
    bucket: Bucket, dropped: Callable[[int], None] = lambda number: None
) -> AsyncIterator[list[int]]:
    """One coordinator that has the only partition; yields what it took, dropped and left."""
    taken: list[int] = []

    def drop(number: int) -> None:
        taken.remove(number)
        dropped(number)

    async def take(number: int, cause: str, lost: Any) -> None:
        taken.append(number)

    async def leave(number: int) -> None:
        taken.remove(number)

    fullness: Any = SimpleNamespace(here=lambda: False, heard=lambda others: None)
    ownership = Ownership(
        bucket,
        Health(),
        name="me",
        incarnation="now",
        partitions=1,
        take=take,
        leave=leave,
        drop=drop,
        capacity=fullness,
    )
    running = asyncio.create_task(ownership.run())
    try:
        async with asyncio.timeout(BOUND_S):
            await ownership.settled.wait()
        yield taken
    finally:
        running.cancel()
        await asyncio.wait({running})


async def until_owner(bucket: Bucket, owner: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while bucket.owner() != owner:
            bucket.written.clear()
            await bucket.written.wait()


@pytest.mark.parametrize(
    "before", [None, lease("", ""), lease("me", "before"), lease("other", "gone")]
)
async def test_a_lease_that_is_again_what_it_was_before_is_written_anew(
    before: bytes | None,
) -> None:
    bucket = Bucket()
    async with owning(bucket) as taken:
        if before is None:
            del bucket.entries[LEASE]
        else:
            bucket.write(LEASE, before, 5)
        bucket.came_back()
        await until_owner(bucket, "me")
        assert taken == [0]


async def test_the_lease_of_another_who_lives_is_left_alone() -> None:
    bucket = Bucket()
    async with owning(bucket) as taken:
        sign = json.dumps({"incarnation": "there", "state": "serving"}).encode()
        bucket.write(MEMBER + "other", sign, 6)
        bucket.write(LEASE, lease("other", "there"), 5, ago_s=60.0)
        bucket.came_back()
        await asyncio.sleep(0.6)
        assert (bucket.owner(), taken) == ("other", [0])  # the fence in Postgres decides


@pytest.mark.parametrize("revision", [11, 10])
async def test_a_lease_that_another_wrote_later_takes_the_partition_away_whatever_its_revision(
    revision: int,
) -> None:
    """The bucket lost ours, and gave its revision again."""
    bucket = Bucket()
    gone = asyncio.Event()
    async with owning(bucket, lambda number: gone.set()) as taken:
        assert bucket.entries[LEASE].revision >= revision
        sign = json.dumps({"incarnation": "there", "state": "serving"}).encode()
        bucket.write(MEMBER + "other", sign, 6)
        bucket.write(LEASE, lease("other", "there"), revision)
        bucket.came_back()
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        assert (taken, bucket.owner()) == ([], "other")


async def test_a_lease_that_is_not_heard_yet_is_not_written_twice() -> None:
    bucket = Bucket()
    async with owning(bucket):
        entry = bucket.entries[LEASE]
        bucket.write(LEASE, lease("", ""), entry.revision - 1)  # what was heard before it
        await asyncio.sleep(0.6)
        assert bucket.owner() == ""


@pytest.mark.parametrize("known", [True, False])
async def test_a_lease_that_something_foreign_hides_is_still_ours(known: bool) -> None:
    bucket, dropped = Bucket(), list[int]()
    async with owning(bucket, dropped.append):
        bucket.written.clear()
        bucket.overwrite(LEASE, known=known)
        bucket.came_back()
        await until_owner(bucket, "me")
        async with asyncio.timeout(BOUND_S):
            await bucket.written.wait()
        assert (dropped, bucket.entries[LEASE].overwritten) == ([], False)


async def test_a_hidden_lease_that_its_owner_does_not_write_again_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner came back and could not read whose it was; the others saw it before."""
    monkeypatch.setattr(leases, "LEASE_S", 0.05)
    monkeypatch.setattr(leases, "GRACE_S", 0.05)
    monkeypatch.setattr(leases, "TICK_S", 0.01)
    bucket, gone = Bucket(), asyncio.Event()
    async with owning(bucket, lambda number: gone.set()):
        sign = json.dumps({"incarnation": "there", "state": "serving"}).encode()
        bucket.write(MEMBER + "other", sign, 6)
        await bucket.put(LEASE, lease("other", "there"), revision=None, timeout_ms=0.0)
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        bucket.overwrite(LEASE, known=True)
        async with asyncio.timeout(BOUND_S):
            while bucket.entries[LEASE].value == lease("other", "there"):
                bucket.write(MEMBER + "other", sign, 6)  # it lives
                await asyncio.sleep(0.01)
