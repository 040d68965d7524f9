"""Steps that were acknowledged and came back with their stream are removed; consumers that are ahead of
their stream pass over no new ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from hocket.coordinator.dispatch.step_cleanup import keep_removing, remove
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects

STEP = subjects.step("python", "normal")
OTHER = subjects.step("sql", "normal")
EVENT = subjects.event("acme", "p", "run-finished")
TIMEOUT_S = 30.0


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """A stream whose messages stay when they are acknowledged, as after a crash of its server."""
    bus = await Bus.connect(nats_url, name="leftovers")
    await bus.js.add_stream(StreamConfig(name=subjects.STEPS, subjects=[subjects.STEP_FILTER]))
    await bus.js.add_stream(StreamConfig(name=subjects.EVENTS, subjects=[EVENT]))
    yield bus
    await bus.close()


async def test_only_what_is_acknowledged_by_its_own_consumer_is_removed(bus: Bus) -> None:
    config = ConsumerConfig(
        durable_name="c", filter_subject=STEP, ack_policy=AckPolicy.EXPLICIT, ack_wait=60
    )
    await bus.js.add_consumer(subjects.STEPS, config)
    for number in range(4):
        await bus.publish(STEP, b"%d" % number)
        await bus.publish(OTHER, b"of nobody")
    pull = await bus.js.pull_subscribe_bind(consumer="c", stream=subjects.STEPS)
    messages = await pull.fetch(3, timeout=5)
    for place in (0, 1):
        await messages[place].ack_sync(timeout=5)
    assert await remove(bus) == 2
    kept = (await bus.js.stream_info(subjects.STEPS, subjects_filter=">")).state.subjects
    assert kept == {STEP: 2, OTHER: 4}
    await messages[2].ack_sync(timeout=5)
    (last,) = await pull.fetch(1, timeout=5)
    assert last.data == b"3"
    assert await remove(bus) == 1


async def consumer_ahead(
    bus: Bus, name: str, seq: int, *, stream: str = subjects.STEPS, subject: str = STEP
) -> Any:
    """Make a consumer that has acknowledged more than the stream ever had, as after a server was killed
    that wrote its consumers down later than its streams; return its pull subscription."""
    config = ConsumerConfig(
        durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=60
    )
    await bus.js.add_consumer(stream, config)
    verb = f"CONSUMER.RESET.{stream}.{name}"
    answer = await bus.api(verb, {"seq": seq + 1}, timeout_ms=5_000)
    assert answer["ack_floor"]["stream_seq"] == seq, answer
    return await bus.js.pull_subscribe_bind(consumer=name, stream=stream)


async def delivered(pull: Any, count: int) -> list[bytes]:
    """Return what a consumer delivers: that many messages, and any others that follow at once."""
    found: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            with suppress(TimeoutError):
                found += [message.data for message in await pull.fetch(count, timeout=1)]
    with suppress(TimeoutError):
        found += [message.data for message in await pull.fetch(1, timeout=0.3)]
    return found


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize(("stream", "subject"), [(subjects.STEPS, STEP), (subjects.EVENTS, EVENT)])
async def test_a_consumer_ahead_of_its_stream_passes_over_nothing_new(
    bus: Bus, stream: str, subject: str, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = await consumer_ahead(bus, "c", 14, stream=stream, subject=subject)
    if is_old:
        forbid(bus, "CONSUMER.RESET", monkeypatch)
    await remove(bus, came_back=True)
    await bus.publish(subject, b"new")
    if is_old:
        pull = await bus.js.pull_subscribe_bind(consumer="c", stream=stream)
    assert await delivered(pull, 1) == [b"new"]
    await remove(bus, came_back=True)
    assert await delivered(pull, 0) == []


async def test_a_consumer_for_which_there_are_steps_is_left_alone(bus: Bus) -> None:
    pull = await consumer_ahead(bus, "c", 14)
    await bus.publish(STEP, b"given or not")
    await remove(bus, came_back=True)
    assert await delivered(pull, 0) == []


async def test_it_is_looked_for_soon_after_the_server_came_back(
    bus: Bus, servers: EmbeddedServers
) -> None:
    pull = await consumer_ahead(bus, "c", 14)
    looking = asyncio.create_task(keep_removing(bus, is_mine=lambda: True))
    try:
        await servers.nats.kill()
        await servers.nats.start()
        async with asyncio.timeout(TIMEOUT_S):
            while not bus.losses or not bus.connected:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            info = f"CONSUMER.INFO.{subjects.STEPS}.c"
            while (await bus.api(info, {}, timeout_ms=5_000))["ack_floor"][  # noqa: ASYNC110
                "stream_seq"
            ]:
                await asyncio.sleep(0.05)
        await bus.publish(STEP, b"new")
        assert await delivered(pull, 1) == [b"new"]
    finally:
        looking.cancel()
        await asyncio.wait({looking})


def forbid(bus: Bus, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a verb of JetStream's API answered as by a server that does not know it."""
    asked = bus.api

    async def api(subject: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        if subject.startswith(verb):
            raise BusUnavailable(reason="nobody answers")
        return await asked(subject, request, **options)

    monkeypatch.setattr(bus, "api", api)


async def test_an_empty_stream_is_left_alone(bus: Bus) -> None:
    assert await remove(bus) == 0
