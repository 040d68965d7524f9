"""How the steps of a worker that died go on."""

import os
from pathlib import Path

import pytest

from hocket.workers.runtime.intake.after_worker_death import (
    FREE_DELIVERIES,
    MAX_DELIVERIES,
    MAX_DELIVERIES_UNKNOWN,
    MAX_PASSED_ON,
    Course,
    course_of,
    give_back,
    take_over,
)
from hocket.workers.runtime.intake.known_kinds import KnownKinds
from hocket.workers.runtime.transport.held_steps import ALONE, RUNS, HeldSteps
from hocket.workers.runtime.transport.probation_records import kind_of
from support.worker_rig import Rig

KIND = "kind-" + "a" * 32
OTHER = "kind-" + "b" * 32
WAITING = "kind-" + "c" * 32
ACK = "$JS.ACK.STEPS.step-python-normal.1.{}.1.1763850000000000000.0"


class Records:
    """What workers noted of kinds, as the stream would keep it."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = set(kinds)

    async def killers(self) -> set[str]:
        return set(self.kinds)

    async def note_kind(self, kind: str, *, ends_worker: bool) -> None:
        (self.kinds.add if ends_worker else self.kinds.discard)(kind)


class Said:
    """A connection that keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        self.messages.append((subject, payload))


def known(records: Records, held: HeldSteps) -> KnownKinds:
    return KnownKinds(records, held)  # type: ignore[arg-type]


def die(folder: Path, **held_as: int) -> None:
    """Hold steps of kinds as a worker does, and end without draining: the file stays, the lock goes."""
    held = HeldSteps(folder)
    held.open()
    for number, (kind, how) in enumerate(held_as.items()):
        held.set(held.add(ACK.format(number), kind), how)
    assert held._map is not None
    held._map.close()
    os.close(held._file)


@pytest.mark.parametrize(
    ("deliveries", "course"),
    [
        (1, Course.RUNS),
        (MAX_PASSED_ON + 1, Course.RUNS),  # that full workers passed on: none need have died
        (FREE_DELIVERIES + 1, Course.ON_PROBATION),
        (MAX_DELIVERIES - 1, Course.ON_PROBATION),
        (MAX_DELIVERIES, Course.GIVEN_UP),
    ],
)
def test_a_step_that_comes_often_is_tried_alone_and_then_given_up(
    deliveries: int, course: Course
) -> None:
    step = Rig(None, "").step()  # type: ignore[arg-type]
    kinds = known(Records(), HeldSteps())
    assert course_of(step, deliveries, kinds) is course


@pytest.mark.parametrize(
    ("deliveries", "course"),
    [
        (MAX_DELIVERIES_UNKNOWN - 1, Course.ON_PROBATION),
        (MAX_DELIVERIES_UNKNOWN, Course.GIVEN_UP),
    ],
)
def test_a_step_of_which_no_record_is_kept_is_given_up_earlier(
    deliveries: int, course: Course
) -> None:
    step = Rig(None, "").step()  # type: ignore[arg-type]
    kinds = known(Records(), HeldSteps())
    assert course_of(step, deliveries, kinds, is_recorded=False) is course


async def test_a_step_of_a_kind_that_ends_workers_is_tried_alone_at_once() -> None:
    step = Rig(None, "").step()  # type: ignore[arg-type]
    kinds = known(Records(kind_of(step)), HeldSteps())
    await take_over(HeldSteps(), kinds)
    assert course_of(step, 1, kinds) is Course.ON_PROBATION


async def test_what_a_dead_worker_held_is_found_by_the_next_and_its_death_told(
    tmp_path: Path,
) -> None:
    die(tmp_path, **{OTHER: RUNS, KIND: ALONE})
    records, held = Records(), HeldSteps(tmp_path)
    kinds = known(records, held)
    assert await take_over(held, kinds) == [ACK.format(0), ACK.format(1)]
    assert records.kinds == {KIND}, "the one that was alone"
    assert kinds.suspicion.doublings(KIND) == 1
    again = HeldSteps(tmp_path)
    assert await take_over(again, known(Records(), again)) == [], "it was taken over"


async def test_two_deaths_are_held_against_what_ran_in_both_and_not_what_waited(
    tmp_path: Path,
) -> None:
    die(tmp_path, **{KIND: RUNS, OTHER: RUNS, WAITING: 1})
    die(tmp_path, **{KIND: RUNS, WAITING: 1})
    records, held = Records(), HeldSteps(tmp_path)
    await take_over(held, known(records, held))
    assert records.kinds == {KIND}


def test_only_steps_of_the_stream_are_given_back() -> None:
    bus = Said()
    others = ["hocket.task.t.p", ACK.format(1).replace("STEPS", "TASKS"), ACK.format("1 2"), ""]
    give_back(bus, [ACK.format(1), *others, ACK.format(2)])  # type: ignore[arg-type]
    assert bus.messages == [(ACK.format(1), b"-NAK"), (ACK.format(2), b"-NAK")]
