"""How long a node may wait for what it calls, so that its attempt can still say why it failed."""

from typing import Protocol

from hocket.kit.process.clock import now_ms

TO_REPORT_SHARE = 0.1
MAX_TO_REPORT_MS = 1_000.0
"""A call ends this much before its attempt would be stopped: a tenth of the time, up to a second."""


class HasDeadline(Protocol):
    """An attempt that is stopped at a time (epoch ms)."""

    @property
    def deadline_at_ms(self) -> float:
        """The time when it is stopped."""
        ...


def call_time_ms(attempt: HasDeadline) -> float:
    """Return how long a call may take so that its attempt can still say why it failed."""
    left_ms = max(attempt.deadline_at_ms - now_ms(), 1.0)
    return left_ms - min(TO_REPORT_SHARE * left_ms, MAX_TO_REPORT_MS)
