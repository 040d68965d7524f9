"""Batches of posts on a real NATS: each post is stored, whatever becomes of its batch."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.post_batches import MAX_POSTS, MIN_POSTS, Post, PostBatches
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects

TIMEOUT_S = 30.0
MANY = 2 * MAX_POSTS + 7
SUBJECT = subjects.batched_task("t", "p")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    yield bus
    await bus.close()


def posts(count: int, *, subject: str = SUBJECT, size: int = 20) -> list[Post]:
    return [Post(subject, b"%0*d" % (size, n), f"id-{n}", {"ce-id": str(n)}) for n in range(count)]


async def stored(bus: Bus, stream: str = subjects.TASK_BATCHES) -> list[bytes]:
    state = (await bus.js.stream_info(stream)).state
    return [
        (await bus.js.get_msg(stream, seq, direct=False)).data or b""
        for seq in range(max(state.first_seq, 1), state.last_seq + 1)
    ]


async def singles(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the subjects of what is posted by itself, as it comes."""
    seen: list[str] = []
    usual = bus.publish_durable

    def counted(subject: str, *arguments: object, **named: object) -> object:
        seen.append(subject)
        return usual(subject, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(bus, "publish_durable", counted)
    return seen


async def test_many_are_stored_together_in_their_order(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = await singles(bus, monkeypatch)
    wanted = posts(MANY)
    assert await PostBatches(bus).post(wanted, timeout_s=TIMEOUT_S) == [None] * MANY
    assert sorted(await stored(bus)) == [one.payload for one in wanted]
    assert len(alone) == MANY - 2 * MAX_POSTS  # too few for a batch


async def test_what_is_there_already_is_not_stored_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, wanted = PostBatches(bus), posts(MIN_POSTS)
    assert await batches.post(wanted[:3] + wanted[:3], timeout_s=TIMEOUT_S) == [None] * 6
    twice = [*wanted, wanted[7]]
    alone = await singles(bus, monkeypatch)
    assert await batches.post(twice, timeout_s=TIMEOUT_S) == [None] * len(twice)
    assert len(alone) == len(twice)
    assert await batches.post(wanted, timeout_s=TIMEOUT_S) == [None] * len(wanted)
    assert sorted(await stored(bus)) == [one.payload for one in wanted]


async def test_a_stream_that_takes_no_batches_is_sent_each_by_itself(bus: Bus) -> None:
    wanted = posts(MIN_POSTS, subject=subjects.USAGE_SUBJECT)
    outcomes = await PostBatches(bus).post(wanted, timeout_s=TIMEOUT_S)
    assert outcomes == [None] * MIN_POSTS
    assert await stored(bus, subjects.USAGE) == [one.payload for one in wanted]


async def test_what_a_full_stream_takes_is_told_of_each(bus: Bus) -> None:
    info = await bus.api(f"STREAM.INFO.{subjects.TASK_BATCHES}", {}, timeout_ms=5_000)
    config = {**info["config"], "max_msgs": MIN_POSTS - 10}
    await bus.api(f"STREAM.UPDATE.{subjects.TASK_BATCHES}", config, timeout_ms=5_000)
    outcomes = await PostBatches(bus).post(posts(MIN_POSTS), timeout_s=2.0)
    assert outcomes.count(None) == MIN_POSTS - 10 == len(await stored(bus))
    assert sum(isinstance(one, BusUnavailable) for one in outcomes) == 10


async def test_a_server_that_is_killed_meanwhile_has_all(
    bus: Bus, servers: EmbeddedServers
) -> None:
    wanted = posts(4 * MAX_POSTS)
    posting = asyncio.create_task(PostBatches(bus).post(wanted, timeout_s=TIMEOUT_S))
    await asyncio.sleep(0.02)  # anywhere in it
    await servers.nats.kill()
    assert await posting == [None] * len(wanted)
    # a killed server knows no ids any more, and this stream none after 0.1 s; intake knows the keys
    assert set(await stored(bus)) == {one.payload for one in wanted}


async def test_where_the_server_stays_away_nothing_is_called_stored(nats_url: str) -> None:
    bus = await Bus.connect(nats_url, name="test")
    await bus.close()
    outcomes = await PostBatches(bus).post(posts(MIN_POSTS), timeout_s=0.5)
    assert all(isinstance(one, BusUnavailable) for one in outcomes)
