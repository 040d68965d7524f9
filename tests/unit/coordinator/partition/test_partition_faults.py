"""What a partition does with an event that its rules cannot take: bury it and go on."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.partition.events import event_handler, event_reader
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.runs import run_loader
from support.lone_partition import lone_partition


class Notes:
    """Stands for the committer, the partition's tenure there, and the bus: writes down what was
    applied."""

    losses = 0

    def __init__(self) -> None:
        self.applied_seqs: list[int] = []
        self.applying = False

    async def wait_for_capacity(self) -> None:
        return

    write_watermark = None
    partition = 0
    epoch = 1

    def begin_event(self) -> None:
        self.applying = True

    def end_event(self) -> None:
        self.applying = False

    def applied(self, seq: int, msg_id: str, size_bytes: int) -> None:
        assert not self.applying
        self.applied_seqs.append(seq)


def message(seq: int) -> LogMessage:
    return LogMessage(seq, "id", 1.0, "cancel", b'{"run_id": "r1"}')


def partition_with(notes: Notes, **parts: Any) -> Partition:
    metrics = SimpleNamespace(applied=lambda kind: None, set_aside=lambda what: None)
    store = SimpleNamespace(ping=None)
    return lone_partition(notes, bus=notes, metrics=metrics, store=store, **parts)


async def test_an_event_that_breaks_a_rule_is_buried_and_the_next_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes, buried = Notes(), []

    async def breaks(*arguments: object) -> None:
        raise AssertionError("a bug")

    async def bury(bus: object, source: str, **letter: Any) -> None:
        buried.append((source, letter["error"].code))

    partition = partition_with(notes)
    monkeypatch.setattr(partition._events, "_apply", breaks)
    monkeypatch.setattr(event_reader.dead_letters, "bury", bury)
    await partition._events.handle(message(7))
    await partition._events.handle(message(8))
    assert buried == [("log", "event_not_applicable")] * 2
    assert notes.applied_seqs == [7, 8]


async def test_an_event_waits_while_postgres_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, tries = Notes(), []

    async def away(*arguments: object) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionRefusedError("no database")

    partition = partition_with(notes)
    monkeypatch.setattr(partition._events, "_apply", away)
    monkeypatch.setattr(event_handler, "PAUSE_S", 0.0)
    await partition._events.handle(message(7))
    assert (len(tries), notes.applied_seqs) == (3, [7])


async def test_runs_whose_plan_is_not_in_memory_are_handed_out_again_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resumed: list[tuple[str, str]] = []
    all_resumed = asyncio.Event()
    tries = [ConnectionRefusedError("no database")]

    async def entry(tenant: str, pipeline: str, version: int) -> str:
        if tries:
            raise tries.pop()
        return "read"

    def resume(run: Any, found: str) -> None:
        resumed.append((run.run_id, found))
        if len(resumed) == 2:
            all_resumed.set()

    ready = {"known": "kept"}
    catalog = SimpleNamespace(
        ready=lambda tenant, pipeline, version: ready.get(pipeline), entry=entry
    )
    partition = partition_with(Notes(), catalog=catalog)
    for run_id, pipeline in (("r1", "known"), ("r2", "forgotten")):
        run: Any = SimpleNamespace(run_id=run_id, tenant="t", pipeline=pipeline, version=1)
        partition._runs.in_flight[run_id] = run
    monkeypatch.setattr(partition._loader, "_resume", resume)
    monkeypatch.setattr(run_loader, "PAUSE_S", 0.0)
    partition._loader.redispatch()
    async with asyncio.timeout(10):
        await all_resumed.wait()
    assert resumed == [("r1", "kept"), ("r2", "read")]
