"""The clock: the only place that reads time for the shells; the cores are told."""

import time


def now_ms() -> float:
    """Return the wall clock as milliseconds since the Unix epoch."""
    return time.time() * 1000.0


def monotonic_ms() -> float:
    """Return a clock that never goes back, for measuring durations (ms)."""
    return time.monotonic() * 1000.0
