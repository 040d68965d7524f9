"""Large outputs are read in a thread: it takes seconds, and the event loop must keep the worker's other
steps alive meanwhile."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hocket.workers.runtime.execution.step_threads import outcome_of
from hocket.workers.runtime.results.encoding import makes_more_than

T = TypeVar("T")

MANY_VALUES = 50_000
"""How many values the event loop reads at a time."""


def is_large(output: Any) -> bool:
    """Tell whether an output makes more than MANY_VALUES."""
    return makes_more_than(MANY_VALUES, output)


async def apart(output: Any, read: Callable[[Any], T]) -> T:
    """Return what a function makes of an output, in a thread if it is large; raise what it raises."""
    if not is_large(output):
        return read(output)
    outcome = await asyncio.to_thread(outcome_of, partial(read, output))
    if outcome.error is not None:
        raise outcome.error
    made: T = outcome.value
    return made
