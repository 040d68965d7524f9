"""What a partition does with an event that its rules cannot take: bury it and go on."""

from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.partition.events import event_handler, event_reader
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.runs.run_cache import LookedUp
from support.lone_partition import lone_partition


class Notes:
    """Stands for the committer, the partition's tenure there, and the bus: writes down what was
    applied."""

    losses = 0

    def __init__(self) -> None:
        self.applied_seqs: list[int] = []
        self.applying = False
        self.unwritten = self

    async def wait_for_capacity(self) -> None:
        return

    def of(self, run_id: str) -> list[Any]:
        return []

    write_watermark = None
    partition = 0
    epoch = 1

    def begin_event(self) -> None:
        self.applying = True

    def end_event(self) -> None:
        self.applying = False

    break_off = end_event

    def applied(self, seq: int, msg_id: str, size_bytes: int) -> None:
        assert not self.applying
        self.applied_seqs.append(seq)


def message(seq: int) -> LogMessage:
    return LogMessage(seq, "id", 1.0, "cancel", b'{"run_id": "r1"}')


def partition_with(notes: Notes, **parts: Any) -> Partition:
    metrics = SimpleNamespace(applied=lambda kind, events: None, set_aside=lambda what: None)

    async def stored(run_id: str) -> None:
        return None

    store = SimpleNamespace(ping=None, stored_for_events=stored)
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
    monkeypatch.setattr(partition._events._application, "apply", breaks)
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
    monkeypatch.setattr(partition._events._application, "apply", away)
    monkeypatch.setattr(event_handler, "PAUSE_S", 0.0)
    await partition._events.handle(message(7))
    assert (len(tries), notes.applied_seqs) == (3, [7])


async def test_a_run_that_an_event_left_half_changed_is_read_back_before_the_log_is_read_on() -> (
    None
):
    """The log may have lost the event, though nothing that was applied."""
    asked: list[str] = []

    async def stored(run_id: str) -> None:
        asked.append(run_id)
        if len(asked) == 1:
            raise ConnectionRefusedError("no database")

    metrics = SimpleNamespace(taken=lambda cause, took_ms: None)
    partition = lone_partition(
        Notes(), metrics=metrics, store=SimpleNamespace(stored_for_events=stored)
    )
    partition._runs.dropped["r1"] = True
    await partition._redispatch()  # the server came back
    await partition._log._resumes()
    assert (asked, partition._runs.dropped) == (["r1"] * 2, {})


async def test_a_run_that_was_set_aside_while_it_was_read_back_is_not_set_aside_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ping() -> None:
        return

    async def stored(run_id: str) -> SimpleNamespace:
        row = {"run_id": run_id, "finished_at": None, "parked_until": None}
        return SimpleNamespace(row=row, steps=[])

    partition = lone_partition(Notes(), store=SimpleNamespace(stored_for_events=stored, ping=ping))

    async def refused_meanwhile(found: Any) -> None:
        partition._runs.in_flight["r1"] = ended
        raise KeyError("a")

    ended: Any = SimpleNamespace(run_id="r1")
    monkeypatch.setattr(partition._loader, "_go_on", refused_meanwhile)
    assert await partition._loader.find("r1") is ended


@pytest.mark.parametrize("is_away", [False, True])
async def test_runs_that_are_cancelled_together_are_read_together_while_postgres_answers(
    is_away: bool,
) -> None:
    asked: list[Any] = []

    async def all_stored(run_ids: list[str]) -> dict[str, Any]:
        asked.append(run_ids)
        if is_away:
            raise ConnectionRefusedError("no database")
        return {}

    async def stored(run_id: str) -> None:
        asked.append(run_id)

    notes = Notes()
    store = SimpleNamespace(all_stored_for_events=all_stored, stored_for_events=stored)
    metrics = SimpleNamespace(applied=lambda kind, events: None)
    partition = lone_partition(notes, bus=notes, metrics=metrics, store=store)
    body = b'{"run_id": "r1", "others": ["r2", "r3"]}'
    await partition._events.handle(LogMessage(7, "id", 1.0, "cancel", body))
    runs = ["r1", "r2", "r3"]
    assert asked == ([runs, *runs] if is_away else [runs])
    assert notes.applied_seqs == [7]
    assert partition._runs.looked_up == {}


async def test_what_was_read_of_a_run_is_forgotten_once_the_run_is_in_memory() -> None:
    partition = lone_partition(Notes())
    run: Any = SimpleNamespace(run_id="r1", has_ended=True, size_bytes=0, steps={})
    partition._runs.looked_up["r1"] = LookedUp(None, [])
    partition._runs.remember = lambda *_: None  # type: ignore[method-assign]
    partition._runs._let_go = lambda _: 0  # type: ignore[method-assign]
    partition._runs.put(run)
    assert partition._runs.looked_up == {}


@pytest.mark.parametrize("is_away", [False, True])
async def test_tasks_of_one_message_that_may_be_old_are_looked_up_together(is_away: bool) -> None:
    asked: list[list[str]] = []

    async def known(run_ids: list[str]) -> dict[str, Any]:
        asked.append(run_ids)
        if is_away and len(run_ids) > 1:
            raise ConnectionRefusedError("no database")
        return {}

    partition = lone_partition(Notes(), store=SimpleNamespace(known=known))
    runs = partition._events._application._acceptance.known
    events: list[Any] = [SimpleNamespace(run_id=f"r{n}", task_ack=None) for n in range(3)]
    await runs.look_up(events)
    assert [await runs.begun_by(event) for event in events] == [None] * 3
    together = [["r0", "r1", "r2"]]
    assert asked == ([*together, ["r0"], ["r1"], ["r2"]] if is_away else together)
    await runs.begun_by(events[0])  # delivered again: what was looked up then counts no more
    assert asked[-1] == ["r0"]
