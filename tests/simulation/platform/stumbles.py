"""Rules that raise for once, in the middle of an event: nothing of that may stay of the run.

In a fourth of the plays every tenth event or so of a partition raises, at a moment that is drawn: behind
the first changes of a step, behind later ones, or when all is done. The event is not at fault: applied
once more, it does what it always did.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.run.transition import Outcome, Transition
from hocket.coordinator.partition.events import event_application
from simulation.engine.swaps import swapped
from simulation.engine.world import World

PLAYS = 0.25
CHANCE = 0.1
LATEST = 6
"""Behind so many changes of steps an event raises, or when it is over."""


class Stumble(Exception):
    """What happens for once."""


@contextmanager
def stumbling(world: World) -> Iterator[None]:
    """Let the rules of partitions raise now and then, where the seed says so."""
    dice = world.dice("stumbling")
    if dice.random() >= PLAYS:
        yield
        return
    applying, noting = event_application.apply, Transition.note
    left: int | None = None
    """Changes until the event in hand raises; None where it does not."""
    tried: dict[str, Any] = {}
    """The latest event of each run: applied once more it does not raise."""

    def apply(run: Run, event: Any, *how: Any, **named: Any) -> Outcome:
        nonlocal left
        is_again = tried.get(run.run_id) is event
        tried[run.run_id] = event
        if is_again or dice.random() >= CHANCE:
            return applying(run, event, *how, **named)
        left = dice.randint(1, LATEST)
        try:
            applying(run, event, *how, **named)
            raise Stumble
        finally:
            left = None

    def note(self: Transition, step: Step) -> None:
        nonlocal left
        noting(self, step)
        if left is not None:
            left -= 1
            if not left:
                raise Stumble

    with swapped((event_application, "apply", apply), (Transition, "note", note)):
        yield
