"""Which steps are tried alone, in what order, and when other steps may start again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.errors import AttemptCancelled
from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.intake import probation
from hocket.workers.runtime.intake.after_worker_death import (
    FREE_DELIVERIES,
    Course,
    course_of,
    take_over,
)
from hocket.workers.runtime.intake.isolation import Isolation
from hocket.workers.runtime.intake.probation import (
    MAX_BEGUN,
    MAX_DEATHS_ALONE,
    Probation,
    Suspect,
    next_of,
)
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.runtime.transport.probation_records import NOTHING, Record, kind_of
from hocket.workers.runtime.transport.step_message import StepMessage
from support.worker_rig import Rig

WAIT_S = 10.0


class Records:
    """Records in memory, as the stream would keep them."""

    are_kept = True

    def __init__(self) -> None:
        self.kept: dict[str, Record] = {}
        self.kinds: set[str] = set()

    async def read(self, step: Any) -> Record:
        return self.kept.get(step.run_id, NOTHING)

    async def write(self, step: Any, record: Record) -> None:
        await asyncio.sleep(0)
        self.kept[step.run_id] = record

    async def killers(self) -> set[str]:
        return set(self.kinds)

    async def note_kind(self, kind: str, *, ends_worker: bool) -> None:
        (self.kinds.add if ends_worker else self.kinds.discard)(kind)


class Acknowledged:
    """Acknowledgements of which none waits."""

    def send(self) -> None:
        return None


class Slots:
    """A pool in which a step runs until it is released."""

    def __init__(self, owner: Isolation) -> None:
        self.running = 0
        self.has_waiting = False
        self.begun: list[str] = []
        self.buried: list[tuple[str, int]] = []
        self.release: dict[str, asyncio.Event] = {}
        self.changed = asyncio.Event()
        self._owner = owner
        self._tasks: list[asyncio.Task[None]] = []
        owner.join(self)

    def begin(self, attempt: Attempt) -> None:
        self.running += 1
        attempt.state = State.RUNNING
        self.begun.append(attempt.step.run_id)
        attempt.task = asyncio.create_task(self._run(attempt))
        self._tasks.append(attempt.task)
        self.changed.set()

    @property
    def is_busy(self) -> bool:
        return self.running > 0

    async def _run(self, attempt: Attempt) -> None:
        try:
            await self.release.setdefault(attempt.step.run_id, asyncio.Event()).wait()
            attempt.conclude()
        finally:
            self.ended()

    def ended(self) -> None:
        self.running -= 1
        asyncio.get_running_loop().call_soon(self._owner.turned)

    def schedule(self) -> None:
        self.changed.set()

    async def bury(self, msg: Any, attempt: Attempt, deaths: int) -> None:
        self.buried.append((attempt.step.run_id, deaths))
        self.changed.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Parts(NamedTuple):
    tried: Probation
    slots: Slots
    records: Records
    closed: asyncio.Event
    isolation: Isolation


def message() -> StepMessage:
    return StepMessage("$JS.ACK.x", 0, 0.0, b"")


def attempt(rig: Rig, sent_at_ms: float = 1.0, deliveries: int = FREE_DELIVERIES + 1) -> Attempt:
    delivery = Delivery(deliveries, int(sent_at_ms), 1, int(sent_at_ms * 1e6), 0)
    return Attempt(rig.step(), message(), delivery, b"")


@pytest.fixture
def rig() -> Rig:
    return Rig(None, "")  # type: ignore[arg-type]


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    records, closed = Records(), asyncio.Event()
    isolation = Isolation(closed.set)
    tried = Probation(records, Acknowledged(), isolation, HeldSteps())  # type: ignore[arg-type]
    slots = Slots(isolation)
    yield Parts(tried, slots, records, closed, isolation)
    await tried.close()
    await slots.close()


def add(tried: Probation, slots: Slots, given: Attempt) -> str:
    slots.release[given.step.run_id] = asyncio.Event()
    tried.add(slots, None, given)  # type: ignore[arg-type]
    return given.step.run_id


def is_tried(tried: Probation, step: RequestedStep) -> bool:
    """Whether a step is on probation from its first delivery."""
    return course_of(step, 1, tried.kinds) is Course.ON_PROBATION


def suspect(rig: Rig, sent_at_ms: float, begun: int, tenant: str = "t", **step: Any) -> Suspect:
    delivery = Delivery(FREE_DELIVERIES + 1, int(sent_at_ms), 1, int(sent_at_ms * 1e6), 0)
    given = Attempt(rig.step(tenant=tenant, **step), message(), delivery, b"")
    return Suspect(None, None, given, Record(begun, 0))  # type: ignore[arg-type]


def in_turn(waiting: list[Suspect]) -> list[Suspect]:
    left, order = list(waiting), []
    while left:
        order.append(next_of(left))
        left.remove(order[-1])
    return order


def test_the_step_begun_least_often_is_next_and_the_oldest_of_several(rig: Rig) -> None:
    young, old, begun = suspect(rig, 2.0, 0), suspect(rig, 1.0, 0), suspect(rig, 0.5, 1)
    stopped = suspect(rig, 9.0, 3)
    stopped.attempt.stop(AttemptCancelled(reason="over"))
    assert in_turn([young, begun, old, stopped]) == [stopped, old, young, begun]


def test_many_steps_of_one_tenant_do_not_keep_those_of_others_waiting(rig: Rig) -> None:
    tried, *hostile = [
        suspect(rig, 1.0 + n, int(n == 0), "hostile", run_id=f"r{n:024d}") for n in range(16)
    ]
    other = suspect(rig, 100.0, 0, "other")
    assert next_of([tried, *hostile, other]) is other
    assert next_of([tried, *hostile]) is hostile[0]


async def test_steps_on_probation_run_one_at_a_time_and_nothing_beside_them(
    rig: Rig, parts: Parts
) -> None:
    tried, slots, records, closed, _ = parts
    slots.running = 1
    first, second = (add(tried, slots, attempt(rig, at_ms)) for at_ms in (1.0, 2.0))
    await closed.wait()
    assert not slots.begun  # another step runs
    slots.ended()
    await slots.until(lambda: slots.begun == [first])
    assert parts.isolation.is_closed
    assert records.kept[first] == Record(1, 1)  # as it is found if the worker ends now
    slots.release[first].set()
    await slots.until(lambda: slots.begun == [first, second])
    assert records.kept[first] == NOTHING
    slots.release[second].set()
    await slots.until(lambda: not parts.isolation.is_closed)


async def test_a_step_under_which_its_worker_ended_alone_too_often_is_buried(
    rig: Rig, parts: Parts
) -> None:
    tried, slots, records, *_ = parts
    given = attempt(rig)
    records.kept[given.step.run_id] = Record(5, MAX_DEATHS_ALONE)
    killer = add(tried, slots, given)
    await slots.until(lambda: slots.buried == [(killer, MAX_DEATHS_ALONE)])
    assert not slots.begun


async def test_a_step_under_which_workers_always_end_is_buried_though_others_ran_there(
    rig: Rig, parts: Parts
) -> None:
    tried, slots, records, *_ = parts
    given = attempt(rig)
    records.kept[given.step.run_id] = Record(MAX_BEGUN, 0)
    ending = add(tried, slots, given)
    await slots.until(lambda: slots.buried == [(ending, 0)])
    assert not slots.begun
    assert not is_tried(tried, given.step), "it may have been another kind"


async def test_a_worker_that_stops_takes_back_what_it_noted(rig: Rig, parts: Parts) -> None:
    tried, slots, records, *_ = parts
    given = attempt(rig)
    before = records.kept[given.step.run_id] = Record(2, 1)
    name = add(tried, slots, given)
    await slots.until(lambda: slots.begun == [name])
    assert records.kept[name] == Record(3, 2)
    await tried.close()
    assert records.kept[name] == before


async def test_others_start_beside_a_long_step_and_it_is_no_death_alone_any_more(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probation, "ALONE_S", 0.0)
    tried, slots, records, *_ = parts
    first, second = (add(tried, slots, attempt(rig, at_ms)) for at_ms in (1.0, 2.0))
    await slots.until(lambda: slots.begun == [first] and not parts.isolation.is_closed)
    assert records.kept[first] == Record(1, 0)
    slots.release[first].set()
    await slots.until(lambda: slots.begun == [first, second])


async def test_a_step_that_is_never_alone_begins_all_the_same(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probation, "GATHER_S", 0.0)
    tried, slots, records, *_ = parts
    slots.running = 1
    name = add(tried, slots, attempt(rig))
    await slots.until(lambda: slots.begun == [name] and not parts.isolation.is_closed)
    assert records.kept[name] == Record(1, 0)


async def test_a_record_that_cannot_be_written_does_not_stop_the_worker(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, slots, records, *_ = parts

    async def refuse(step: Any, record: Record) -> None:
        raise RuntimeError("the server says something new")

    monkeypatch.setattr(records, "write", refuse)
    first, second = (add(tried, slots, attempt(rig, at_ms)) for at_ms in (1.0, 2.0))
    await slots.until(lambda: slots.begun == [first])
    slots.release[first].set()
    await slots.until(lambda: slots.begun == [first, second])


async def test_a_worker_that_was_begun_anew_lets_others_begin_first(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else steps that end their worker, one after the other, leave no time to those of others."""
    tried, slots, *_ = parts
    monkeypatch.setattr(parts.isolation, "_open_until_s", asyncio.get_running_loop().time() + 1_000)
    monkeypatch.setattr(probation, "SETTLE_S", 0.001)
    slots.has_waiting = True
    name = add(tried, slots, attempt(rig))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not parts.isolation.is_closed
    assert not slots.begun
    slots.has_waiting = False
    await slots.until(lambda: slots.begun == [name])


async def test_steps_of_a_kind_that_ended_workers_are_tried_from_the_first_delivery(
    rig: Rig, parts: Parts
) -> None:
    tried, slots, records, *_ = parts
    given = attempt(rig)
    records.kept[given.step.run_id] = Record(5, MAX_DEATHS_ALONE)
    assert not is_tried(tried, given.step)
    add(tried, slots, given)
    await slots.until(lambda: bool(slots.buried))
    alike = attempt(rig)
    assert is_tried(tried, alike.step)
    assert not is_tried(tried, rig.step(tenant="other"))
    assert not is_tried(tried, rig.step(config={"handler": "m:other"}))

    isolation = Isolation(lambda: None)
    later = Probation(records, Acknowledged(), isolation, HeldSteps())  # type: ignore[arg-type]
    await take_over(HeldSteps(), later.kinds)  # another worker knows it, too
    assert is_tried(later, alike.step)

    for number in range(3):  # that end well
        name = add(tried, slots, attempt(rig))
        await slots.until(lambda number=number: len(slots.begun) == number + 1)  # type: ignore[misc]
        slots.release[name].set()
        await until_ended(tried)
    assert not is_tried(tried, alike.step)
    assert not records.kinds


async def until_ended(tried: Probation) -> None:
    async with asyncio.timeout(WAIT_S):
        while tried.is_serving:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_kind_is_its_function_whatever_else_its_nodes_say(rig: Rig) -> None:
    first, second = ({"handler": "m:f", "with": {"n": n}} for n in (1, 2))
    assert kind_of(rig.step(config=first)) == kind_of(rig.step(config=second))
    assert kind_of(rig.step(config=first)) != kind_of(rig.step(config=first, tenant="other"))
    assert kind_of(rig.step(config={"handler": ["m:f"]})) == kind_of(rig.step(config={}))


async def test_a_kind_whose_steps_ended_workers_waits_longer_and_others_do_not(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, slots, *_ = parts
    monkeypatch.setattr(probation, "SETTLE_S", 0.001)
    hostile = Attempt(
        rig.step(tenant="hostile"),
        message(),
        Delivery(9, 1, 1, 1, 0),
        b"",
    )
    tried.kinds.suspicion.died_alone(kind_of(hostile.step))
    name = add(tried, slots, hostile)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not slots.begun, "the worker is quiet, and yet it waits"
    other = add(tried, slots, attempt(rig, 2.0))
    await slots.until(lambda: slots.begun == [other])
    slots.release[other].set()
    hostile.stop(AttemptCancelled(reason="over"))
    slots.release[name].set()
    await slots.until(lambda: slots.begun == [other, name])  # it is answered for, at once


async def test_no_more_steps_wait_for_their_turn_than_there_is_room_for(
    rig: Rig, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, slots, *_ = parts
    monkeypatch.setattr(probation, "MAX_SUSPECTS", 2)
    monkeypatch.setattr(parts.isolation, "_open_until_s", asyncio.get_running_loop().time() + 1_000)
    slots.has_waiting = True
    for at_ms in (1.0, 2.0):
        assert not tried.is_full
        add(tried, slots, attempt(rig, at_ms))
    assert tried.is_full


def test_a_step_that_ends_its_worker_late_is_alone_for_longer_the_next_time() -> None:
    longer = [probation.alone_s(Record(begun, 0)) / probation.ALONE_S for begun in range(6)]
    assert longer == [1, 2, 3, 4, 4, 4]
    assert probation.alone_s(Record(2, 2)) == probation.ALONE_S
