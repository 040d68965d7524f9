"""However much partitions have to compute, everything else has its turns meanwhile."""

import asyncio
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.partition import partition_set
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.partition_set import PartitionSet
from hocket.coordinator.partition.turns import RESTS, TURN_MS, Turns
from hocket.kit.process import clock
from support.lone_partition import lone_partition

RUNS = 200


class Work:
    """A clock that only work moves, and what notes how much of it was done between two turns of
    something else."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.now_s = 0.0
        self.most_ms = self.total_ms = 0.0
        self.order: list[str] = []
        self._seen_s = 0.0

    def do(self, ms: float, whose: str = "") -> None:
        begun_ms = self.turns.begin()
        self.now_s += ms / 1_000
        self.total_ms += ms
        self.order.append(whose)
        self.turns.worked(begun_ms)

    async def beat(self) -> None:
        while True:
            self.most_ms = max(self.most_ms, 1_000 * (self.now_s - self._seen_s))
            self._seen_s = self.now_s
            await asyncio.sleep(0)


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    with clock.source(lambda: work.now_s, lambda: work.now_s):
        yield work


@pytest.fixture
async def beating(work: Work) -> Any:
    task = asyncio.create_task(work.beat())
    yield task
    task.cancel()


async def nothing(*arguments: object) -> list[Any]:
    return []


def partition_with(work: Work, **parts: Any) -> Partition:
    unwritten = SimpleNamespace(
        begin_event=lambda: None, end_event=lambda: None, of=lambda run_id: []
    )
    tenure = SimpleNamespace(
        over=False,
        write_watermark=None,
        unwritten=unwritten,
        partition=0,
        epoch=1,
        end=lambda: None,
        break_off=lambda: None,
        applied=lambda *arguments: None,
        wait_for_capacity=nothing,
    )
    dispatcher = SimpleNamespace(
        dispatch=None, cancel=None, took=lambda n: None, lost=lambda n: None, release=lambda: None
    )
    return lone_partition(tenure, dispatcher=dispatcher, turns=work.turns, **parts)


@pytest.mark.parametrize(("each_ms", "most_ms"), [(1.0, TURN_MS + 1.0), (500.0, 500.0)])
async def test_a_takeover_leaves_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch, work: Work, beating: Any, each_ms: float, most_ms: float
) -> None:
    async def in_flight(number: int) -> list[Any]:
        return [None] * RUNS

    store = SimpleNamespace(in_flight=in_flight, outlook=nothing, ended_since=nothing)
    partition = partition_with(work, store=store)

    async def load(stored: Any) -> None:
        work.do(each_ms)

    monkeypatch.setattr(partition._loader, "load", load)
    await partition.go_on(0.0)
    await asyncio.sleep(0)
    assert work.total_ms == RUNS * each_ms
    assert work.most_ms <= most_ms + 0.1


async def test_a_server_that_came_back_leaves_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch, work: Work, beating: Any
) -> None:
    partition = partition_with(work)
    runs: Any = partition._runs
    runs.in_flight = {f"r{n}": SimpleNamespace(run_id=f"r{n}") for n in range(RUNS)}
    runs.dropped = {"before": True}

    def resume(run: Any) -> None:
        work.do(1.0, run.run_id)
        if run.run_id == "r1":  # events that are applied meanwhile
            del runs.in_flight["r2"]
            del runs.in_flight["r3"]
            runs.dropped["r3"] = True

    monkeypatch.setattr(partition._loader, "_resume", resume)
    monkeypatch.setattr(partition._notifier, "retell", lambda: None)
    partition.came_back()
    assert partition._redispatching is not None
    await partition._redispatching
    assert work.most_ms <= TURN_MS + 1.1
    assert work.order == [f"r{n}" for n in range(RUNS) if n not in (2, 3)]
    assert runs.dropped == {"before": False, "r3": False}


async def test_what_is_handed_out_again_waits_while_too_many_posts_do(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    full = asyncio.Event()
    bus = SimpleNamespace(losses=0, wait_for_capacity=full.wait)
    partition = partition_with(work, bus=bus)
    runs: Any = partition._runs
    runs.in_flight = {"r1": "r1", "r2": "r2"}
    monkeypatch.setattr(partition._loader, "_resume", lambda run: work.order.append(run))
    redispatching = asyncio.create_task(partition._redispatch())
    for _ in range(3):
        await asyncio.sleep(0)
    assert work.order == ["r1"]
    full.set()
    await redispatching
    assert work.order == ["r1", "r2"]


async def test_a_partition_that_was_lost_hands_nothing_out_again(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    partition = partition_with(work)
    runs: Any = partition._runs
    runs.in_flight = {f"r{n}": SimpleNamespace(run_id=f"r{n}") for n in range(RUNS)}
    monkeypatch.setattr(partition._loader, "_resume", lambda run: work.do(TURN_MS))
    monkeypatch.setattr(partition._notifier, "retell", lambda: None)
    partition.came_back()
    await asyncio.sleep(0)
    assert work.total_ms == TURN_MS
    partition.end()
    assert partition._redispatching is not None
    await asyncio.wait({partition._redispatching})
    assert work.total_ms == TURN_MS


async def test_events_that_take_long_leave_turns_to_everything_else_and_to_other_partitions(
    monkeypatch: pytest.MonkeyPatch, work: Work, beating: Any
) -> None:
    async def read(name: str, cancelled: int) -> None:
        metrics = SimpleNamespace(applied=lambda kind, events: None)
        store = SimpleNamespace(all_stored_for_events=all_stored)
        partition = partition_with(work, metrics=metrics, store=store)

        async def apply(event: Any, at_ms: float) -> None:
            work.do(1_000.0, name)

        monkeypatch.setattr(partition._events._application, "apply", apply)
        others = ", ".join(f'"r{n}"' for n in range(1, cancelled))
        body = f'{{"run_id": "r0", "others": [{others}]}}'.encode()
        for seq in range(6 // cancelled):
            await partition._events.handle(LogMessage(seq + 1, "id", 1.0, "cancel", body))

    async def all_stored(run_ids: list[str]) -> dict[str, Any]:
        return {}

    await asyncio.gather(read("a", 1), read("b", 1), read("c", 6))
    assert round(work.most_ms) == 1_000
    assert work.order == ["a", *["a", "b", "c"] * 5, "b", "c"]


async def test_a_turn_is_given_after_some_of_everything_else_though_one_who_waits_gives_up(
    work: Work,
) -> None:
    work.do(TURN_MS)
    first, second = (asyncio.create_task(work.turns.take()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    for _ in range(RESTS):
        assert not second.done()
        await asyncio.sleep(0)
    await second
    assert not work.turns._waiting


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


async def test_the_upkeep_of_partitions_leaves_turns_to_everything_else(
    monkeypatch: pytest.MonkeyPatch, work: Work, beating: Any
) -> None:
    monkeypatch.setattr(partition_set, "UPKEEP_EVERY_S", 0.0)
    services: Any = SimpleNamespace(turns=work.turns)
    owned = PartitionSet(services, "me")
    done = asyncio.Event()

    def upkeep(number: int) -> None:
        work.do(500.0, str(number))
        if number == 0:
            del owned._owned[1]  # another coordinator takes it
        elif number == 3:
            done.set()

    reading: Any = None
    for number in range(4):
        one: Any = SimpleNamespace(upkeep=partial(upkeep, number))
        owned._owned[number] = partition_set._Owned(one, reading)
    running = asyncio.create_task(owned.upkeep())
    await done.wait()
    await asyncio.sleep(0)
    running.cancel()
    assert work.order[:3] == ["0", "2", "3"]
    assert round(work.most_ms) == 500
