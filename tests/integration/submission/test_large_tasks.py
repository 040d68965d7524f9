"""While large tasks cannot be decided, few of them are in a coordinator's memory, and none is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hocket.coordinator.intake.consumer import MAX_ASKED_BYTES
from hocket.coordinator.intake.tasks_in_hand import MAX_IN_HAND_BYTES, TasksInHand
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams

BODY = b'{"text": "%b"}' % (b"x" * 400_000)
TASKS = 60
MOST = (MAX_IN_HAND_BYTES + MAX_ASKED_BYTES) // len(BODY) + 2
STILL_S = 0.5
WAIT_S = 30.0


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    yield bus
    await bus.close()


async def pulled(tasks: TasksInHand) -> None:
    """Pull tasks until this is cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks.start(group)


async def until_still(tasks: TasksInHand) -> int:
    """Wait until no more tasks come, and return how many are in hand."""
    count = -1
    while count != len(tasks):
        count = len(tasks)
        await asyncio.sleep(STILL_S)
    return count


async def test_large_tasks_stay_in_their_stream_until_there_is_room(bus: Bus) -> None:
    for number in range(TASKS):
        await bus.publish(f"hocket.task.t.p{number}", BODY)
    tasks = TasksInHand(bus, max_task_bytes=500_000, is_full=lambda: False)
    decided: set[str] = set()
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        pulling = group.create_task(pulled(tasks))
        await tasks.fill_batch()
        assert await until_still(tasks) <= MOST < TASKS
        while len(decided) < TASKS:
            await tasks.fill_batch()
            while tasks.batch:
                decided.add(tasks.batch[0].message.subject)
                bus.publish_nowait(tasks.batch[0].message.reply, b"+ACK")
                tasks.decided()
            tasks.more()
        pulling.cancel()
    assert len(decided) == TASKS
