"""What anybody may write into the buckets of coordinators and gateways, on a real NATS: it is ignored,
removed or written over, and who watches goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.scheduling import lease_records
from hocket.coordinator.core.scheduling.lease_records import MEMBER, PARTITION
from hocket.coordinator.ownership.leases import Ownership
from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.routing import membership_records
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.process.lifecycle import Health
from hocket.schemas import subjects
from support.forger import Forger, head_of

BOUND_S = 20
PARTITIONS = 2
DEEP = b"[" * 4_000
JUNK = (
    b"",
    b"\xff\xfe",
    b"null",
    b"7",
    b"[]",
    b"{}",
    DEEP,
    b"9" * 4_090,
    b"x" * 8_000,
    b'{"incarnation": 1e400, "state": {}}',
    b'{"incarnation": "", "state": "serving"}',
    b'{"owner": {"a": 1}, "incarnation": []}',
    json.dumps({"owner": "x" * 1_000, "incarnation": "y"}).encode(),
    b'{"owner": "\\u0000", "incarnation": "\\ud800"}',
)
KEYS = ("x", "1000", "-1", "99999999999999999999", "\u0663", "1.2", "", "*", "a" * 300)
RAW_KEYS = (b"partition.\xff", b"member.\xff\xfe", b">", b"*", b"partition.*", b"member.a\x0cb")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    yield bus
    await bus.close()


def coordinators_bucket(bus: Bus) -> Bucket:
    expected = partial(lease_records.expected, partitions=PARTITIONS)
    return Bucket(bus, subjects.COORDINATORS, expected=expected)


@asynccontextmanager
async def owning(bus: Bus, name: str = "me") -> AsyncIterator[tuple[Bucket, list[int]]]:
    """A coordinator that owns all partitions; yields its bucket and what it has."""
    owned: list[int] = []

    async def take(number: int, cause: str, lost: Any) -> None:
        owned.append(number)

    async def leave(number: int) -> None:
        owned.remove(number)

    fullness: Any = SimpleNamespace(here=lambda: False, heard=lambda others: None)
    bucket = coordinators_bucket(bus)
    ownership = Ownership(
        bucket,
        Health(),
        name=name,
        incarnation="now",
        partitions=PARTITIONS,
        take=take,
        leave=leave,
        drop=owned.remove,
        capacity=fullness,
    )
    async with bucket.watching():
        running = asyncio.create_task(ownership.run())
        try:
            async with asyncio.timeout(BOUND_S):
                await ownership.settled.wait()
            yield bucket, owned
            assert not running.done(), "junk ended the coordinator"
        finally:
            running.cancel()
            await asyncio.wait({running})


async def until(bucket: Bucket, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():
            bucket.changed.clear()
            await bucket.changed.wait()


def values(bucket: Bucket) -> dict[str, bytes | None]:
    return {key: entry.value for key, entry in bucket.entries.items()}


def lease(bucket: Bucket, number: int) -> dict[str, Any]:
    entry = bucket.entries.get(f"{PARTITION}{number}")
    return {} if entry is None or entry.value is None else json.loads(entry.value)


async def test_junk_in_every_key_takes_no_partition_and_is_written_over(
    bus: Bus, nats_url: str
) -> None:
    prefix = f"$KV.{subjects.COORDINATORS}.".encode()
    async with owning(bus) as (bucket, owned), Forger(nats_url) as forger:
        for junk in JUNK:
            for key in (f"{PARTITION}0", f"{PARTITION}1", f"{MEMBER}me", f"{MEMBER}ghost"):
                forger.write(prefix + key.encode(), junk)
            for rest in KEYS:
                forger.write(prefix + f"{PARTITION}{rest}".encode(), junk)
            for raw in RAW_KEYS:
                forger.write(prefix + raw, junk)
        await forger.flushed()
        ours = [f"{PARTITION}{number}" for number in range(PARTITIONS)]
        await until(bucket, lambda: not any(bucket.entries[key].overwritten for key in ours))
        assert sorted(owned) == [0, 1]
        assert all(lease(bucket, number)["owner"] == "me" for number in range(PARTITIONS))
        assert set(bucket.entries) <= {*ours, f"{MEMBER}me", f"{MEMBER}ghost"}


async def test_headers_that_are_no_text_stop_no_watch(bus: Bus, nats_url: str) -> None:
    prefix = f"$KV.{subjects.COORDINATORS}.".encode()
    async with owning(bus) as (bucket, _), Forger(nats_url) as forger:
        for head in (head_of(b"KV-Operation: \xff\xfe"), head_of(b"\xff")):
            forger.write(prefix + b"member.other", b"{}", head)
        sign = b'{"incarnation": "there", "state": "leaving"}'
        forger.write(prefix + b"member.other", sign)
        await until(bucket, lambda: values(bucket).get(f"{MEMBER}other") == sign)


async def test_who_joins_a_bucket_full_of_junk_finds_what_is_not(bus: Bus, nats_url: str) -> None:
    prefix = f"$KV.{subjects.COORDINATORS}.".encode()
    async with AsyncExitStack() as stack:
        _, owned = await stack.enter_async_context(owning(bus))
        forger = await stack.enter_async_context(Forger(nats_url))
        for number in range(200):
            forger.write(prefix + f"{PARTITION}x{number}".encode(), b"junk")
        await forger.flushed()
        async with coordinators_bucket(bus).watching():
            late = coordinators_bucket(bus)
            async with late.watching():
                await until(late, lambda: lease(late, 0).get("owner") == "me")
                assert not [key for key in late.entries if key.startswith(f"{PARTITION}x")]
        assert sorted(owned) == [0, 1]


async def test_foreign_keys_are_removed_and_never_more_than_they(bus: Bus, nats_url: str) -> None:
    prefix = f"$KV.{subjects.COORDINATORS}.".encode()
    async with owning(bus) as (bucket, _), Forger(nats_url) as forger:
        for raw in (b"x.y", *RAW_KEYS):
            forger.write(prefix + raw, b"junk")
        info: dict[str, Any] = {}
        async with asyncio.timeout(BOUND_S):
            while f"$KV.{subjects.COORDINATORS}.x.y" in info.get("subjects", {"": 0}) or not info:
                answer = await bus.api(
                    f"STREAM.INFO.KV_{subjects.COORDINATORS}",
                    {"subjects_filter": ">"},
                    timeout_ms=5_000,
                )
                info = answer["state"]
                bucket.changed.clear()
                await bucket.changed.wait()  # a sign of life comes twice a second
        kept = {name.removeprefix(prefix.decode()) for name in info["subjects"]}
        assert {"partition.0", "partition.1", "member.me"} <= kept


GATEWAY_JUNK = (
    *JUNK,
    b'{"a": [1]}',
    b'{"a": [1, 2, 3]}',
    b'{"a": [1e308, "x"]}',
    b'{"a": [-1, 5]}',
    b'{"a": [99999999999999999999, 1]}',
    b'{"level": 99, "ready_at_ms": "x", "provision_ms": null, "load_ms": NaN}',
    b'{"epoch": 1e308, "off": 1, "identity": []}',
    b'{"x": [1]}',
)


@pytest.mark.parametrize("key", ["limit.a", "warm.a", "arm.a.b", "tally.a.b", "member.ghost"])
@pytest.mark.parametrize("junk", GATEWAY_JUNK)
async def test_junk_of_gateways_is_no_entry(key: str, junk: bytes) -> None:
    if key == "member.ghost" and junk == b"{}":
        return  # a sign of life
    assert membership_records.expected(key, None)
    assert not membership_records.expected(key, junk)


async def test_junk_leaves_the_membership_as_it_is(bus: Bus, nats_url: str) -> None:
    bucket = Bucket(bus, subjects.GATEWAYS, expected=membership_records.expected)
    membership = Membership(bucket, Health(), name="me")
    prefix = f"$KV.{subjects.GATEWAYS}.".encode()
    stopping = asyncio.Event()
    async with membership.active(stopping), Forger(nats_url) as forger:
        async with asyncio.timeout(BOUND_S):
            await membership.joined.wait()
        revision = await membership.put("limit.a", {"me": [1, 1]}, revision=0)
        assert revision is not None
        for junk in GATEWAY_JUNK:
            for key in (b"limit.a", b"warm.a", b"arm.a.b", b"tally.a.b", b"member.me", b"nobody's"):
                forger.write(prefix + key, junk)
        for raw in RAW_KEYS:
            forger.write(prefix + raw, b"{}")
        await forger.flushed()
        await until(bucket, lambda: membership.is_overwritten("limit.a"))
        told = {key: content for key, _, content in membership.told("limit.")}
        assert told == {"a": {"me": [1, 1]}}
        assert "me" in membership.live
    assert not stopping.is_set() or membership.joined.is_set()
