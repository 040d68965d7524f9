"""Steps that were acknowledged and came back with their stream: they are removed, others stay."""

from collections.abc import AsyncIterator

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from hocket.coordinator.dispatch.step_cleanup import remove
from hocket.kit.nats.bus import Bus
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
