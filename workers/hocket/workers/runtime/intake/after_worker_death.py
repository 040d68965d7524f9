"""What happens when a worker dies: its steps go to other workers, and the one that killed it is found.

1. Nobody needs to notice. The steps that the worker held are not acknowledged, and the server redelivers
   those that have not been reported as in progress for `ack_wait_s` (`Worker` reports them,
   `kit/nats/consumers/step_consumers.py` sets the time). Its slots no longer count after SILENT_MS
   without an announcement (`schemas/worker_slots.py`).
2. A worker that starts over the same folder does not wait for that: it reads what was left there
   (`take_over`, from `transport/held_steps.py`), has it redelivered at once (`give_back`), and holds the
   death against the kinds of steps that were running (`hold_against`, by the rules of `suspicion.py`).
3. `course_of` decides how each delivered step proceeds. It runs like any other, continuing from its
   journal if it has one (`runtime/journal/`); or it is tried alone, because of its many deliveries or
   its kind (`probation.py`, while `isolation.py` keeps others from starting); or it is given up.
4. A step under which workers died MAX_DEATHS_ALONE times while it was alone, or MAX_BEGUN times in all,
   is given up as well: it becomes a dead letter, and its run gets a failing result (`undeliverable.py`).
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
"""The number of deliveries after which a step is no longer passed on: all workers are busy."""
FREE_DELIVERIES = MAX_PASSED_ON + 1
"""The deliveries that a step may have before it is on probation: full workers may pass it on this often
without any of them having died."""
MAX_DELIVERIES = 1_000
"""A step delivered this often is dead-lettered in any case. Many deliveries alone say little, because a
step that waits for its turn on probation is redelivered with each restart of a server or a worker: 127
times in eight minutes of nearly 400 faults. A step that kills workers is found long before
(`probation.py`)."""
MAX_DELIVERIES_UNKNOWN = 20
"""The same for workers with their own key, which keep no records of steps."""
_AGAIN = b"-NAK"

log = structlog.get_logger()


class Course(Enum):
    """How a delivered step proceeds."""

    RUNS = "runs"
    ON_PROBATION = "on probation"
    GIVEN_UP = "given up"


GOES_ON = Course.RUNS
"""The usual one, under a name of its own, because a member of an Enum is found slowly."""


def course_of(
    step: RequestedStep, deliveries: int, kinds: KnownKinds, *, is_recorded: bool = True
) -> Course:
    """Return how a step proceeds after this many deliveries, given what is known of its kind and whether
    records of steps are kept."""
    if deliveries >= (MAX_DELIVERIES if is_recorded else MAX_DELIVERIES_UNKNOWN):
        return Course.GIVEN_UP
    if deliveries > FREE_DELIVERIES or kinds.has(step):
        return Course.ON_PROBATION
    return GOES_ON


async def take_over(held: HeldSteps, kinds: KnownKinds) -> list[str]:
    """Start recording what this worker holds, and learn which kinds kill workers and what earlier
    workers over the same folder were running when they died. Return the ack subjects of all that these
    held."""
    held.open()
    await kinds.read()
    ack_subjects: list[str] = []
    for left in held.of_ended():
        hold_against(kinds.suspicion, left)
        ack_subjects += [step.ack_subject for step in left.steps]
    await kinds.tell()
    return ack_subjects


def give_back(bus: Bus, ack_subjects: Sequence[str]) -> None:
    """Have the server redeliver at once what dead workers held."""
    known = [one for one in dict.fromkeys(ack_subjects) if is_ack_of(one, subjects.STEPS)]
    for subject in known:
        bus.publish_nowait(subject, _AGAIN)
    if known:
        log.warning("steps_of_ended_worker_given_back", steps=len(known))


def hold_against(suspicion: Suspicion, left: Left) -> None:
    """Hold the death of a worker against the step that was tried alone in it, or otherwise against all
    that were running there."""
    suspicion.take_over(left.kinds)
    alone = [held.kind for held in left.steps if held.how == ALONE]
    if alone:
        suspicion.died_alone(alone[0])
    else:
        suspicion.died(held.kind for held in left.steps if held.how == RUNS)
