"""The bus on a real NATS: posts survive a killed server, and streams are as declared."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from hocket.kit.embedded import EmbeddedServers, nats_config
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import PublishRefused
from hocket.kit.nats.streams import StreamRefused, ensure_streams, stream_configs
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo, PayloadTooLarge

POSTS = 5_000
MIB = 1024 * 1024
BOUND_S = 20


@pytest.fixture
async def bus(nats_url: str):
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    yield bus
    await bus.close()


async def test_every_post_is_stored_once_though_the_server_is_killed(
    bus: Bus, servers: EmbeddedServers
) -> None:
    posts = []
    for n in range(POSTS):
        if n % 500 == 0:
            await bus.wait_for_capacity()
            await asyncio.sleep(0)
        # fsynced, so that what was acknowledged before the kill is still there
        posts.append(bus.publish_durable(subjects.USAGE_SUBJECT, b"x" * 200, msg_id=f"m{n}"))
        if n == POSTS // 2:
            await servers.nats.kill()
    await asyncio.wait_for(asyncio.gather(*posts), 60)
    state = (await bus.js.stream_info(subjects.USAGE)).state
    assert state.messages == POSTS
    assert bus.publisher.unacknowledged == 0


@asynccontextmanager
async def bus_with_store(max_bytes: int) -> AsyncIterator[Bus]:
    """A bus on a server of its own with a store of a given size."""
    with (
        tempfile.TemporaryDirectory(prefix="hocket-") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(nats_config, "_file_store_max_bytes", lambda _: max_bytes)
        async with EmbeddedServers(Path(folder), postgres=False) as servers:
            bus = await Bus.connect(servers.nats_url, name="small")
            yield bus
            await bus.close()


async def test_streams_are_as_declared_and_made_once() -> None:
    async with bus_with_store(max_bytes=64 * 1024 * MIB) as bus:  # whatever the disk has
        await ensure_streams(bus)
        await ensure_streams(bus)
        for wanted in stream_configs():
            answer = await bus.api(f"STREAM.INFO.{wanted['name']}", {}, timeout_ms=5_000)
            found = answer["config"]
            assert {key: found.get(key) for key in wanted} == wanted
            assert found["max_bytes"] > 0


async def bounds(bus: Bus) -> dict[str, int]:
    found = {}
    for wanted in stream_configs():
        answer = await bus.api(f"STREAM.INFO.{wanted['name']}", {}, timeout_ms=5_000)
        found[wanted["name"]] = answer["config"]["max_bytes"]
    return found


async def test_streams_fit_into_a_small_store_in_the_same_proportion() -> None:
    async with bus_with_store(1024 * MIB) as bus:
        await ensure_streams(bus)
        made = await bounds(bus)
        # 21.75 GiB are wanted, of which a thirty-second fits
        assert made == {
            "TASKS": 128 * MIB,
            "TASK_BATCHES": 32 * MIB,
            "LOG": 128 * MIB,
            "STEPS": 128 * MIB,
            "CALLS": 8 * MIB,
            "USAGE": 128 * MIB,
            "EVENTS": 32 * MIB,
            "DLQ": 32 * MIB,
            "PROBATION": MIB // 4,
            "JOURNALS": 64 * MIB,
            "GUEST_RESULTS": 8 * MIB,
            "GUEST_LETTERS": 8 * MIB,
            "GUEST_WORKERS": 2 * MIB,
            "GUEST_TYPES": 2 * MIB,
        }
        await ensure_streams(bus)
        assert await bounds(bus) == made


async def test_a_store_that_is_far_too_small_is_refused_with_the_reason() -> None:
    async with bus_with_store(10 * MIB) as bus:
        with pytest.raises(StreamRefused, match="TASKS: insufficient storage"):
            await ensure_streams(bus)


async def test_a_header_with_a_line_break_is_refused(bus: Bus) -> None:
    with pytest.raises(PublishRefused, match="line break"):
        bus.publish_durable("hocket.usage", b"", headers={"a": "b\r\nNats-Rollup: all"})


async def test_a_payload_over_the_servers_limit_is_refused_before_it_is_sent(bus: Bus) -> None:
    with pytest.raises(PayloadTooLarge):
        bus.publish_durable("hocket.usage", b"x" * 2_000_000)


async def test_a_dead_letter_keeps_the_message_byte_for_byte_and_goes_back(bus: Bus) -> None:
    error = ErrorInfo(code="x", message="why")
    subject, payload = subjects.task("t", "p"), b"\xff{"
    headers = {"Nats-Msg-Id": "key", "a": "b"}
    await dead_letters.bury(
        bus, "task", subject=subject, payload=payload, headers=headers, error=error
    )
    (letter,) = await dead_letters.list_(bus)
    assert (letter.subject, letter.payload, letter.error) == (subject, payload, error)
    await dead_letters.redrive(bus, letter.seq)
    assert await dead_letters.list_(bus) == []
    back = await bus.js.get_msg(subjects.TASKS, 1)
    assert back.data == payload
    assert (back.headers or {})["Hocket-Idempotency-Key"] == "key"


@pytest.mark.parametrize("reply", ["hocket.log.0.finished", "$JS.API.STREAM.DELETE.LOG", "a b", ""])
async def test_no_answer_goes_to_the_platforms_own_subjects(nats_url: str, reply: str) -> None:
    bus = await Bus.connect(nats_url, name="test")
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    await bus.subscribe(">", hear)
    bus.respond(reply, b"x")
    bus.respond("_INBOX.mine", b"x")
    async with asyncio.timeout(BOUND_S):
        while "_INBOX.mine" not in heard:  # noqa: ASYNC110 - a task of the client's empties its queue
            await asyncio.sleep(0.01)
    await bus.close()
    assert [subject for subject in heard if subject == reply] == []
