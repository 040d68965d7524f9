"""However many runs a partition has, everything else has its turns while they are loaded or handed out
again."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.partition import partition_set
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.partition_set import PartitionSet
from hocket.coordinator.partition.turns import WORK_OF_RUN, WORK_OF_TURN
from support.lone_partition import lone_partition

RUNS = 200
MOST = WORK_OF_TURN // WORK_OF_RUN
"""The most runs without any work that have one turn."""


async def nothing(*arguments: object) -> list[Any]:
    return []


def partition_with(**parts: Any) -> Partition:
    tenure = SimpleNamespace(
        over=False, write_watermark=None, unwritten=None, partition=0, epoch=1, end=lambda: None
    )
    dispatcher = SimpleNamespace(
        dispatch=None, cancel=None, took=lambda n: None, lost=lambda n: None
    )
    return lone_partition(tenure, dispatcher=dispatcher, **parts)


class Beats:
    """Something else that wants its turns; `most`: how much was done between two of them."""

    def __init__(self) -> None:
        self.most = self.done = 0
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            self.most, self.done = max(self.most, self.done), 0
            await asyncio.sleep(0)

    async def stop(self) -> int:
        await asyncio.sleep(0)
        self._beating.cancel()
        return self.most


@pytest.mark.parametrize(("steps", "most"), [(0, MOST), (WORK_OF_TURN, 1)])
async def test_a_takeover_leaves_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch, steps: int, most: int
) -> None:
    async def in_flight(number: int) -> list[Any]:
        return [SimpleNamespace(steps=[None] * steps)] * RUNS

    store = SimpleNamespace(in_flight=in_flight, outlook=nothing, ended_since=nothing)
    partition, beats = partition_with(store=store), Beats()
    loaded: list[Any] = []

    async def load(stored: Any) -> None:
        loaded.append(stored)
        beats.done += 1

    monkeypatch.setattr(partition._loader, "load", load)
    await partition.go_on(0.0)
    assert (len(loaded), await beats.stop()) == (RUNS, most)


async def test_a_server_that_came_back_leaves_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition, resumed = partition_with(), []
    runs = partition._runs
    runs.in_flight = {f"r{n}": SimpleNamespace(run_id=f"r{n}") for n in range(RUNS)}  # type: ignore[misc]
    runs.dropped = {"before": True}
    beats = Beats()

    def resume(run: Any) -> int:
        resumed.append(run.run_id)
        beats.done += 1
        if run.run_id == "r1":  # events that are applied meanwhile
            del runs.in_flight["r2"]
            del runs.in_flight["r3"]
            runs.dropped["r3"] = True
        return 0

    monkeypatch.setattr(partition._loader, "_resume", resume)
    monkeypatch.setattr(partition._notifier, "retell", lambda: None)
    partition.came_back()
    assert partition._redispatching is not None
    await partition._redispatching
    assert await beats.stop() == MOST
    assert resumed == [f"r{n}" for n in range(RUNS) if n not in (2, 3)]
    assert runs.dropped == {"before": False, "r3": False}


async def test_a_partition_that_was_lost_hands_nothing_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition, resumed = partition_with(), []
    for n in range(RUNS):
        partition._runs.in_flight[f"r{n}"] = SimpleNamespace(run_id=f"r{n}")  # type: ignore[assignment]
    monkeypatch.setattr(partition._loader, "_resume", lambda run: resumed.append(run) or 0)
    monkeypatch.setattr(partition._notifier, "retell", lambda: None)
    partition.came_back()
    await asyncio.sleep(0)
    assert len(resumed) == MOST
    partition.end()
    assert partition._redispatching is not None
    await asyncio.wait({partition._redispatching})
    assert len(resumed) == MOST


@pytest.mark.parametrize(("connected", "handed_out"), [(True, ["again"]), (False, [])])
async def test_steps_that_nats_may_have_lost_during_a_takeover_are_handed_out_again(
    monkeypatch: pytest.MonkeyPatch, connected: bool, handed_out: list[str]
) -> None:
    bus, told = SimpleNamespace(losses=3, connected=connected), []

    async def take_over(*arguments: object, **named: object) -> Any:
        bus.losses += 1
        return SimpleNamespace(
            read=asyncio.Event().wait, end=lambda: None, came_back=lambda: told.append("again")
        )

    monkeypatch.setattr(partition_set, "take_over", take_over)
    services: Any = SimpleNamespace(bus=bus)
    owned = PartitionSet(services, "me")
    await owned.take(0, "start", lambda: None)
    assert told == handed_out  # otherwise it is told once NATS is back
    owned.close()
