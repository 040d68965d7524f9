"""The streams of tasks on a real server: what is acknowledged leaves them, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from hocket.coordinator.intake import task_trimmer
from hocket.coordinator.intake.consumer import TaskPull
from hocket.coordinator.intake.task_trimmer import TaskTrimmer
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects

TIMEOUT_S = 20.0
MIB = 1_024 * 1_024


class Tasks:
    """The stream TASKS with some tasks, all of them delivered."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.mine = True
        self.watched = False
        self.trimmer = TaskTrimmer(bus, is_mine=lambda: self.mine, is_watched=lambda: self.watched)
        self.delivered: dict[int, RawMessage] = {}
        self.arrived = asyncio.Event()
        self.pull = TaskPull(bus, deliver=self._deliver, room=lambda: 100)

    def _deliver(self, message: RawMessage) -> None:
        self.delivered[int(message.data)] = message
        self.arrived.set()

    async def publish(self, *numbers: int) -> None:
        for number in numbers:
            await self.bus.publish(subjects.task("acme", "p"), b"%d" % number)
        async with asyncio.timeout(TIMEOUT_S):
            while not self.delivered.keys() >= set(numbers):
                self.arrived.clear()
                await self.arrived.wait()

    async def done(self, *numbers: int) -> None:
        for number in numbers:
            self.trimmer.done(self.delivered[number].reply)
        await self.bus.nc.flush()

    async def left(self) -> int:
        return (await self.bus.js.stream_info(subjects.TASKS)).state.messages

    async def trimmed_to(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                await self.trimmer.look(subjects.TASKS)
                if await self.left() == count:
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
async def tasks(nats_url: str) -> AsyncIterator[Tasks]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    tasks = Tasks(bus)
    pulling = asyncio.create_task(tasks.pull.run())
    yield tasks
    pulling.cancel()
    await asyncio.wait({pulling})
    await bus.close()


async def test_what_is_acknowledged_is_removed_together(tasks: Tasks) -> None:
    await tasks.publish(*range(5))
    await tasks.done(0, 1, 2)
    assert await tasks.left() == 5, "not one by one"
    await tasks.trimmed_to(2)
    await tasks.done(4)
    await tasks.trimmer.look(subjects.TASKS)
    assert await tasks.left() == 2, "the one before it is not done"
    await tasks.done(3)
    await tasks.trimmed_to(0)


async def test_only_the_owner_of_the_first_partition_removes_tasks(tasks: Tasks) -> None:
    tasks.mine = False
    await tasks.publish(0)
    await tasks.done(0)
    await tasks.trimmer.look(subjects.TASKS)
    assert await tasks.left() == 1


async def test_behind_a_task_that_waits_each_is_removed_by_itself_after_a_while(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tasks.publish(*range(8))
    await tasks.done(1, 2, 3)
    assert not await tasks.trimmer.look(subjects.TASKS)
    assert await tasks.left() == 8
    monkeypatch.setattr(task_trimmer, "KEPT_S", 0.0)
    tasks.mine = False  # other coordinators do, too
    await tasks.trimmed_to(5)
    tasks.mine = True
    await tasks.done(0, 4)
    await tasks.trimmed_to(3)
    await tasks.done(5, 6, 7)
    await tasks.trimmed_to(0)


@pytest.mark.parametrize("reason", ["many", "large", "watched"])
async def test_it_is_removed_at_once_if_there_is_reason(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "many":
        monkeypatch.setattr(task_trimmer, "MAX_KEPT", 3)
    elif reason == "large":
        monkeypatch.setattr(task_trimmer, "KEPT_SHARE", 1e-9)
    tasks.watched = reason == "watched"
    await tasks.publish(*range(6))
    await tasks.done(1, 2, 3)
    await tasks.trimmed_to(3)
    await tasks.done(0)
    await tasks.trimmed_to(2)
    await tasks.trimmer.look(subjects.TASKS)
    assert not tasks.trimmer._crowded


async def test_a_few_are_removed_at_a_time_and_the_others_next(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_trimmer, "REMOVED_PER_LOOK", 4)
    monkeypatch.setattr(task_trimmer, "AT_ONCE", 3)
    tasks.watched = True
    await tasks.publish(*range(10))
    await tasks.done(*range(1, 10))
    assert await tasks.trimmer.look(subjects.TASKS), "there is more"
    assert await tasks.left() == 6
    assert await tasks.trimmer.look(subjects.TASKS)
    assert not await tasks.trimmer.look(subjects.TASKS)
    assert await tasks.left() == 1


async def test_what_somebody_else_has_removed_is_forgotten(tasks: Tasks) -> None:
    tasks.watched = True
    await tasks.publish(*range(3))
    await tasks.done(1, 2)
    await tasks.bus.js.delete_msg(subjects.TASKS, 2)
    await tasks.trimmed_to(1)
    assert not tasks.trimmer._kept[subjects.TASKS]


async def test_what_was_acknowledged_before_nats_was_away_is_not_removed_singly(
    tasks: Tasks, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tasks.publish(*range(4))
    await tasks.done(1)
    await tasks.trimmer.look(subjects.TASKS)
    await tasks.done(2)
    await servers.nats.kill()
    await servers.nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        while not tasks.bus.losses or not tasks.bus.connected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    monkeypatch.setattr(task_trimmer, "KEPT_S", 0.0)
    await tasks.trimmer.look(subjects.TASKS)
    assert await tasks.left() == 4
    await tasks.done(3)
    await tasks.trimmed_to(3)


async def test_a_full_stream_takes_tasks_again_once_some_are_done(tasks: Tasks) -> None:
    config = (await tasks.bus.js.stream_info(subjects.TASKS)).config
    config.max_bytes = 4_096
    await tasks.bus.js.update_stream(config)
    count = 0
    with suppress(BusUnavailable):
        while count < MIB:
            await tasks.publish(count)
            count += 1
    assert count < MIB
    await tasks.done(*range(count))
    await tasks.trimmed_to(0)
    await tasks.publish(count)


async def test_a_consumer_that_is_missing_is_no_reason_to_remove_anything(nats_url: str) -> None:
    bus = await Bus.connect(nats_url, name="test")
    try:
        await ensure_streams(bus)
        await bus.publish(subjects.task("acme", "p"), b"1")
        await TaskTrimmer(bus, is_mine=lambda: True, is_watched=lambda: True).look(subjects.TASKS)
        assert (await bus.js.stream_info(subjects.TASKS)).state.messages == 1
    finally:
        await bus.close()
