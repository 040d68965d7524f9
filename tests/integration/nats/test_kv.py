"""A bucket on a real NATS: revisions, what a watch tells, and what it does when the server goes away."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv import bucket as bucket_module
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.kv.entry import RevisionPassed
from hocket.schemas.capabilities import Capabilities

BOUND_S = 20
NAME = "leases"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    yield bus
    await bus.close()


async def until(bucket: Bucket, holds: Callable[[], bool]) -> None:
    """Wait for what the bucket has heard to satisfy a condition."""
    async with asyncio.timeout(BOUND_S):
        while not holds():
            bucket.changed.clear()
            await bucket.changed.wait()


def values(bucket: Bucket) -> dict[str, bytes | None]:
    return {key: entry.value for key, entry in bucket.entries.items()}


def is_current(bucket: Bucket) -> Callable[[], bool]:
    return lambda: bucket.current_since_s > 0


async def stored(bus: Bus) -> set[str]:
    """The keys that the stream has, of values and of deletions."""
    info = await bus.api(f"STREAM.INFO.KV_{NAME}", {"subjects_filter": ">"}, timeout_ms=5_000)
    return {subject.rsplit(".", 1)[1] for subject in info["state"].get("subjects", {})}


async def until_stored(bus: Bus, keys: set[str]) -> None:
    async with asyncio.timeout(BOUND_S):
        while await stored(bus) != keys:  # noqa: ASYNC110 - the server does not tell
            await asyncio.sleep(0.05)


async def test_an_empty_bucket_is_made_and_current(bus: Bus) -> None:
    bucket = Bucket(bus, NAME)
    async with bucket.watching():
        await until(bucket, is_current(bucket))
        assert bucket.entries == {}


async def test_a_watch_tells_what_is_there_and_every_change(bus: Bus) -> None:
    writer, reader = Bucket(bus, NAME), Bucket(bus, NAME)
    async with writer.watching():
        await until(writer, is_current(writer))
        await writer.put("a.1", b"1")
        await writer.put("a.2", b"2")
        async with reader.watching():
            await until(reader, is_current(reader))
            assert values(reader) == {"a.1": b"1", "a.2": b"2"}
            await writer.put("a.1", b"one")
            await writer.put("a.2", None)
            await until(reader, lambda: values(reader) == {"a.1": b"one", "a.2": None})


async def test_only_one_of_two_who_replace_the_same_revision_succeeds(bus: Bus) -> None:
    one, other = Bucket(bus, NAME), Bucket(bus, NAME)
    async with one.watching():
        await until(one, is_current(one))
        first = await one.put("k", b"x", revision=0)
        with pytest.raises(RevisionPassed, match="`k`"):
            await other.put("k", b"y", revision=0)
        second = await other.put("k", b"y", revision=first)
        with pytest.raises(RevisionPassed):
            await one.put("k", b"z", revision=first)
        await until(one, lambda: one.entries["k"].revision == second)
        assert values(one) == {"k": b"y"}


async def test_a_watch_that_begins_late_knows_how_old_an_entry_is(bus: Bus) -> None:
    writer, reader = Bucket(bus, NAME), Bucket(bus, NAME)
    loop = asyncio.get_running_loop()
    async with writer.watching():
        await until(writer, is_current(writer))
        await writer.put("old", b"x")
        old_s = loop.time()
        for _ in range(500):
            await writer.put("new", b"x")
        new_s = loop.time()
        async with reader.watching():
            await until(reader, is_current(reader))
            halfway_s = (old_s + new_s) / 2
            assert reader.entries["old"].written_at_s < halfway_s
            assert reader.entries["new"].written_at_s > halfway_s


async def test_after_the_server_came_back_the_watch_tells_what_was_written_meanwhile(
    bus: Bus, servers: EmbeddedServers
) -> None:
    watched, writer = Bucket(bus, NAME), Bucket(bus, NAME)
    async with watched.watching():
        await until(watched, is_current(watched))
        before_s = watched.current_since_s
        await writer.put("k", b"before")
        await until(watched, lambda: values(watched) == {"k": b"before"})
        await servers.nats.kill()
        await writer.put("k", b"after", timeout_ms=10_000)
        await until(watched, lambda: values(watched) == {"k": b"after"})
        assert watched.current_since_s > before_s


async def test_a_bucket_that_was_deleted_is_made_again_and_is_empty(bus: Bus) -> None:
    bucket = Bucket(bus, NAME)
    async with bucket.watching():
        await until(bucket, is_current(bucket))
        await bucket.put("k", b"x")
        await until(bucket, lambda: "k" in bucket.entries)
        await bus.api(f"STREAM.DELETE.KV_{NAME}", {}, timeout_ms=5_000)
        await until(bucket, lambda: bucket.entries == {} and bucket.current_since_s > 0)
        await bucket.put("k", b"y", revision=0)


async def test_deleted_keys_take_no_place_of_others(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "MAX_KEYS", 3)
    writer, reader = Bucket(bus, NAME), Bucket(bus, NAME)
    async with writer.watching():
        await until(writer, is_current(writer))
        for number in range(5):
            await writer.put(f"old{number}", b"x")
            await writer.put(f"old{number}", None)
        await writer.put("live", b"x")
        async with reader.watching():
            for one in (writer, reader):
                await until(one, lambda one=one: "live" in one.entries)  # type: ignore[misc]
                assert values(one) == {"old2": None, "old3": None, "old4": None, "live": b"x"}


async def test_a_deletion_is_forgotten_and_then_removed_but_nothing_newer(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "FORGET_S", 0.2)
    monkeypatch.setattr(bucket_module, "REMOVE_S", 0.4)
    bucket, other = Bucket(bus, NAME), Bucket(bus, NAME)
    async with bucket.watching(), other.watching():
        await until(bucket, is_current(bucket))
        for key in ("gone", "back"):
            await bucket.put(key, b"x")
            await bucket.put(key, None)
        await bucket.put("back", b"again")
        for one in (bucket, other):
            await until(one, lambda one=one: values(one).get("back") == b"again")  # type: ignore[misc]
        await asyncio.sleep(bucket_module.FORGET_S)  # counted from when each has heard of it
        await until_stored(bus, {"back"})
        await bucket.put("next", b"x")
        for one in (bucket, other):
            await until(one, lambda one=one: "next" in one.entries)  # type: ignore[misc]
            assert values(one) == {"back": b"again", "next": b"x"}


async def test_who_begins_to_watch_removes_old_deletions_that_others_left(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = Bucket(bus, NAME), Bucket(bus, NAME)
    async with writer.watching():
        await until(writer, is_current(writer))
        await writer.put("gone", None)
        await writer.put("live", b"x")
    monkeypatch.setattr(bucket_module, "FORGET_S", 0.2)
    monkeypatch.setattr(bucket_module, "REMOVE_S", 0.4)
    await asyncio.sleep(0.5)
    async with reader.watching():
        await until(reader, is_current(reader))
        assert values(reader) == {"live": b"x"}
        await until_stored(bus, {"live"})


async def test_who_writes_again_before_hearing_of_it_is_believed(bus: Bus) -> None:
    key = Capabilities([b"k" * 32])
    writer, reader = (Bucket(bus, NAME, capabilities=key) for _ in range(2))
    async with writer.watching(), reader.watching():
        await until(writer, is_current(writer))
        await until(reader, is_current(reader))
        real, writer._received = writer._received, lambda *_: None  # type: ignore[method-assign]
        for value in (b"x", b"y", None):
            await writer.put("k", value)
        writer._received = real  # type: ignore[method-assign]
        await until(reader, lambda: "k" in reader.entries and reader.entries["k"].revision == 3)
        assert values(reader) == {"k": None}
        assert not reader.entries["k"].overwritten


async def test_a_sealed_key_begins_anew_once_its_deletion_is_removed(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "FORGET_S", 0.2)
    monkeypatch.setattr(bucket_module, "REMOVE_S", 0.4)
    key = Capabilities([b"k" * 32])
    old, new = (Bucket(bus, NAME, capabilities=key) for _ in range(2))
    async with old.watching():
        await until(old, is_current(old))
        await old.put("k", b"x")
        await old.put("k", None)
        await until(old, lambda: values(old).get("k", b"") is None)
        await asyncio.sleep(bucket_module.FORGET_S)  # counted from when it has heard of it
        await until_stored(bus, set())
        async with new.watching():
            await until(new, is_current(new))
            await new.put("k", b"y", revision=0)
            await until(old, lambda: values(old).get("k") == b"y")
            assert not old.entries["k"].overwritten
