"""The clock: the only place where the shells read the time; the cores get it as an argument.

A process can be given another source of time (in `tests/simulation`: virtual, and skewed per process).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_wall_s: Callable[[], float] = time.time
_monotonic_s: Callable[[], float] = time.monotonic


def now_ms() -> float:
    """Return the wall clock as milliseconds since the Unix epoch."""
    return _wall_s() * 1000.0


def monotonic_ms() -> float:
    """Return the time of a clock that never goes back, in milliseconds, for measuring durations."""
    return _monotonic_s() * 1000.0


@contextmanager
def source(wall_s: Callable[[], float], monotonic_s: Callable[[], float]) -> Iterator[None]:
    """Read the time from other functions (both in seconds) inside the `with` block."""
    global _wall_s, _monotonic_s
    before = _wall_s, _monotonic_s
    _wall_s, _monotonic_s = wall_s, monotonic_s
    try:
        yield
    finally:
        _wall_s, _monotonic_s = before
