"""What happens when a worker dies: its steps go to other workers, and the one that ended it is found.

1. Nobody needs to notice. What the worker held is not acknowledged, and of what nobody said for
   `ack_wait_s` that it is in work (`Worker` says so, `kit/nats/consumers/step_consumers.py` has the
   time) the server delivers again. Its slots count no longer after SILENT_MS without an announcement
   (`schemas/worker_slots.py`).
2. A worker that starts over the same folder does not wait for that: it reads what was left there
   (`take_over`, from `transport/held_steps.py`), has it delivered at once (`give_back`), and holds the
   death against the kinds of steps that ran (`hold_against`, by the rules of `suspicion.py`).
3. Of each step that comes, `course_of` says how it goes on: it runs as any other, from its journal on
   where it has one (`runtime/journal/`); or it came so often, or is of such a kind, that it is tried
   alone (`probation.py`, while `isolation.py` keeps others from starting); or it is given up.
4. One under which workers ended alone MAX_DEATHS_ALONE times, or MAX_BEGUN times in all, is given up as
   well: a dead letter, and a failing result for its run (`undeliverable.py`).
"""

from collections.abc import Sequence
from enum import Enum

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import is_ack_of
from hocket.schemas import subjects
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.intake.known_kinds import KnownKinds
from hocket.workers.runtime.intake.suspicion import Suspicion
from hocket.workers.runtime.transport.held_steps import ALONE, RUNS, HeldSteps, Left

MAX_PASSED_ON = 3
"""Deliveries of a step after which it waits where it is: all workers are busy."""
FREE_DELIVERIES = MAX_PASSED_ON + 1
"""Deliveries of a step before it is on probation: full workers pass it on as often, and none need have
ended."""
MAX_DELIVERIES = 100
"""A step delivered so often is dead-lettered, whatever is known of it. Many deliveries alone say little:
one that waits for its turn on probation comes again with each restart of a server or a worker. One
under which workers end is found long before (`probation.py`)."""
MAX_DELIVERIES_UNKNOWN = 20
"""The same where no record is kept of steps: in workers with a key of their own."""
_AGAIN = b"-NAK"

log = structlog.get_logger()


class Course(Enum):
    """How a step goes on that was delivered."""

    RUNS = "runs"
    ON_PROBATION = "on probation"
    GIVEN_UP = "given up"


def course_of(
    step: RequestedStep, deliveries: int, kinds: KnownKinds, *, is_recorded: bool = True
) -> Course:
    """Return how a step goes on that was delivered so often, given what is known of its kind, and
    whether a record is kept of what becomes of it."""
    if deliveries >= (MAX_DELIVERIES if is_recorded else MAX_DELIVERIES_UNKNOWN):
        return Course.GIVEN_UP
    if deliveries > FREE_DELIVERIES or kinds.has(step):
        return Course.ON_PROBATION
    return Course.RUNS


async def take_over(held: HeldSteps, kinds: KnownKinds) -> list[str]:
    """Begin to note what this worker holds; find out which kinds end workers, and under what those
    before it over the same folder ended. Return the ack subjects of all that these held."""
    held.open()
    await kinds.read()
    ack_subjects: list[str] = []
    for left in held.of_ended():
        hold_against(kinds.suspicion, left)
        ack_subjects += [step.ack_subject for step in left.steps]
    await kinds.tell()
    return ack_subjects


def give_back(bus: Bus, ack_subjects: Sequence[str]) -> None:
    """Have the server deliver at once what ended workers held."""
    known = [one for one in dict.fromkeys(ack_subjects) if is_ack_of(one, subjects.STEPS)]
    for subject in known:
        bus.publish_nowait(subject, _AGAIN)
    if known:
        log.warning("steps_of_ended_worker_given_back", steps=len(known))


def hold_against(suspicion: Suspicion, left: Left) -> None:
    """Hold the death of a worker against the step that was tried alone in it, or else against all that
    ran there."""
    suspicion.take_over(left.kinds)
    alone = [held.kind for held in left.steps if held.how == ALONE]
    if alone:
        suspicion.died_alone(alone[0])
    else:
        suspicion.died(held.kind for held in left.steps if held.how == RUNS)
