"""Steps that were acknowledged and came back with their stream are removed, others stay; consumers that
were given more than their stream knows of pass over no new steps."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from hocket.coordinator.dispatch.step_cleanup import remove, restore_count
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection import connection
from hocket.schemas import subjects

STEP = subjects.step("python", "normal")
OTHER = subjects.step("sql", "normal")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    """A stream whose messages stay when they are acknowledged, as after a crash of its server."""
    bus = await Bus.connect(nats_url, name="leftovers")
    await bus.js.add_stream(StreamConfig(name=subjects.STEPS, subjects=[subjects.STEP_FILTER]))
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


async def test_an_empty_stream_is_left_alone(bus: Bus) -> None:
    assert await remove(bus) == 0


async def consumer_ahead(bus: Bus, seq: int) -> Any:
    """Make a consumer that was given more than the stream ever had, as after a server was killed that
    had not written down how many steps an empty stream had; return its pull subscription."""
    config = ConsumerConfig(durable_name="c", filter_subject=STEP, ack_policy=AckPolicy.EXPLICIT)
    await bus.js.add_consumer(subjects.STEPS, config)
    verb = f"CONSUMER.RESET.{subjects.STEPS}.c"
    answer = await bus.api(verb, {"seq": seq + 1}, timeout_ms=5_000)
    assert answer["delivered"]["stream_seq"] == seq, answer
    return await bus.js.pull_subscribe_bind(consumer="c", stream=subjects.STEPS)


async def test_a_forgotten_count_is_restored_once(bus: Bus) -> None:
    pull = await consumer_ahead(bus, 14)
    await restore_count(bus)
    assert (await bus.publish(STEP, b"new")).seq == 15
    await restore_count(bus)
    (message,) = await pull.fetch(1, timeout=5)
    assert message.data == b"new"
    await restore_count(bus)
    assert (await bus.publish(STEP, b"newer")).seq == 16


async def test_a_step_posted_by_one_coordinator_survives_the_repair_of_another(bus: Bus) -> None:
    pull = await consumer_ahead(bus, 14)
    await restore_count(bus)
    await bus.publish(STEP, b"new")
    # what another coordinator sends that looked before the first one had repaired it
    await bus.api(f"STREAM.PURGE.{subjects.STEPS}", {"seq": 15}, timeout_ms=5_000)
    (message,) = await pull.fetch(1, timeout=5)
    assert message.data == b"new"


async def test_posts_wait_until_the_count_is_restored_after_a_kill(
    bus: Bus, servers: EmbeddedServers
) -> None:
    pull = await consumer_ahead(bus, 14)
    bus.checks.append(partial(restore_count, bus))
    await servers.nats.kill()
    while bus.connected:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    posted = bus.publish_durable(STEP, b"new")
    await servers.nats.start()
    async with asyncio.timeout(30):
        assert (await posted).seq == 15
    (message,) = await pull.fetch(1, timeout=5)
    assert message.data == b"new"


async def test_a_post_that_was_about_to_be_sent_when_the_server_died_waits_too(
    bus: Bus, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = await consumer_ahead(bus, 14)
    bus.checks.append(partial(restore_count, bus))
    posted: list[asyncio.Future[Any]] = []
    lost = bus.nc._process_op_err

    async def post_first(
        error: Exception,
    ) -> None:  # what is posted now is sent after this iteration
        if bus.connected:
            posted.append(bus.publish_durable(STEP, b"new"))
        await lost(error)

    monkeypatch.setattr(bus.nc, "_process_op_err", post_first)
    await servers.nats.kill()
    await servers.nats.start()
    async with asyncio.timeout(30):
        while not posted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await posted[0]).seq == 15
    (message,) = await pull.fetch(1, timeout=5)
    assert message.data == b"new"


async def test_a_check_is_repeated_but_holds_no_posts_for_ever(
    bus: Bus, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CHECK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connection, "CHECKED_WITHIN_S", 1.0)
    asked = []

    async def fail() -> None:
        asked.append("fail")
        if len(asked) < 3:
            raise RuntimeError("cannot be checked")

    async def hang() -> None:
        asked.append("hang")
        await asyncio.Event().wait()

    bus.checks += [fail, hang]
    await servers.nats.kill()
    posted = bus.publish_durable(STEP, b"new")
    await servers.nats.start()
    async with asyncio.timeout(30):
        await posted
    assert asked[:4] == ["fail", "fail", "fail", "hang"]
    assert asked[4:]
    assert set(asked[4:]) == {"hang"}
