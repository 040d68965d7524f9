"""A leader that was killed and is elected again has forgotten who asked it, and tells nobody: what was
asked is asked again, and what was read is read on, within seconds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hocket.coordinator.intake.consumer import TaskPull
from hocket.coordinator.partition.events.log_reader import LogMessage, LogPosition, LogReader
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.workers.runtime.transport.consumers import ensure_consumers
from hocket.workers.runtime.transport.pull import LanePull

BOUND_S = 12.0
"""For what takes 3 to 5 s. It was 15 to 30 s for tasks, 60 s for steps."""
LOG_BOUND_S = 5.5
"""For what takes 3 s, and took 6 s."""
WAIT_S = 20.0
LOOK_S = 0.1


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    yield bus
    await bus.close()


class Forgetful:
    """Loses the first request of a consumer, as a leader does that is started again."""

    def __init__(self, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost = asyncio.Event()
        self._publish = bus.publish_nowait
        monkeypatch.setattr(bus, "publish_nowait", self)

    def __call__(self, subject: str, *args: Any, **kwargs: Any) -> None:
        if ".CONSUMER.MSG.NEXT." in subject and not self.lost.is_set():
            self.lost.set()
        else:
            self._publish(subject, *args, **kwargs)


async def test_tasks_are_asked_for_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = Forgetful(bus, monkeypatch)
    came = asyncio.Queue[RawMessage]()
    pull = TaskPull(bus, deliver=came.put_nowait, room=lambda: 10)
    asking = asyncio.create_task(pull.run())
    try:
        await asyncio.wait_for(forgetful.lost.wait(), WAIT_S)
        await bus.publish("hocket.task.t.p", b"{}")
        assert (await asyncio.wait_for(came.get(), BOUND_S)).data == b"{}"
    finally:
        await stop_tasks([asking])


async def test_steps_are_asked_for_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = Forgetful(bus, monkeypatch)
    came = asyncio.Queue[RawMessage]()
    lane = LanePull(
        bus,
        "python",
        "normal",
        1,
        ack_wait_s=10.0,
        deliver=lambda message, _lane: came.put_nowait(message),
        changed=lambda: ask(),
    )

    def ask() -> None:
        if lane.is_open and not lane.demand.asked:
            lane.ask(1)

    await ensure_consumers(bus, "python", 10.0)
    await lane.open()
    ask()
    assert forgetful.lost.is_set()
    await bus.publish("hocket.step.python.normal", b"step")
    async with asyncio.timeout(BOUND_S):
        while came.empty():
            lane.check()
            await asyncio.sleep(LOOK_S)
    assert came.get_nowait().data == b"step"
    await lane.close()


async def test_a_log_is_read_on(bus: Bus) -> None:
    read = asyncio.Queue[LogMessage]()

    async def rewound() -> None:
        raise AssertionError("nothing is lost")

    async def resumes() -> None:
        return

    position = LogPosition(0, "")
    reader = LogReader(bus, 0, handle=read.put, rewound=rewound, resumes=resumes, position=position)
    reading = asyncio.create_task(reader.run())
    try:
        await bus.publish(subjects.log(0, "timer"), b"before")
        before = await asyncio.wait_for(read.get(), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while position.applied_ms <= before.at_ms:  # noqa: ASYNC110 (two heartbeats came)
                await asyncio.sleep(0.01)
        names = await bus.api(f"CONSUMER.NAMES.{subjects.LOG}", {}, timeout_ms=5_000)
        for name in names["consumers"]:
            await bus.api(f"CONSUMER.DELETE.{subjects.LOG}.{name}", {}, timeout_ms=5_000)
        await bus.publish(subjects.log(0, "timer"), b"after")
        assert (await asyncio.wait_for(read.get(), LOG_BOUND_S)).body == b"after"
    finally:
        await stop_tasks([reading])
