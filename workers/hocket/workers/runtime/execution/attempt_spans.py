"""What the runtime asks of whoever makes spans of attempts; the SDK carries none."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.context import Context

_NOTHING: AbstractContextManager[None] = nullcontext()


class AttemptSpans(Protocol):
    """Makes the spans of attempts."""

    def attempt(self, attempt: Attempt, context: Context) -> AbstractContextManager[None]:
        """Return the span of an attempt."""
        ...


class NoSpans:
    """Makes none."""

    def attempt(self, _attempt: Attempt, _context: Context) -> AbstractContextManager[None]:
        """Return what does nothing."""
        return _NOTHING
