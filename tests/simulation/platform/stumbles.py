"""Rules that raise once, in the middle of an event: the run must not keep any of the changes.

In a fourth of the plays about every tenth event of a partition raises, at a random moment: after the
first change of a step, after later ones, or when everything is done. The event is not at fault: when it
is applied again, it has its normal effect.
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
"""An event raises after at most this many changes of steps, or at its end."""


class Stumble(Exception):
    """An error that occurs only once."""


@contextmanager
def stumbling(world: World) -> Iterator[None]:
    """Make the rules of partitions raise now and then, if the seed says so."""
    dice = world.dice("stumbling")
    if dice.random() >= PLAYS:
        yield
        return
    applying, noting = event_application.apply, Transition.note
    left: int | None = None
    """Number of changes until the current event raises; None if it does not."""
    tried: dict[str, Any] = {}
    """The latest event of each run, which does not raise when it is applied again."""

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
