"""Moments as Postgres keeps them: whole microseconds. What a run's state says of time is the same
before it was written and after it was read back, and so is all that is worked out of it (until 2**41 ms
of the epoch, in 2039, when a float of milliseconds gets too coarse)."""

US_PER_MS = 1_000


def not_before(at_ms: float) -> float:
    """Return the first whole microsecond (in ms) that is not before a moment, so that a timer which
    has come is due at it."""
    us = round(at_ms * US_PER_MS)
    whole = us / US_PER_MS
    return whole if whole >= at_ms else (us + 1) / US_PER_MS


def nearest(at_ms: float) -> float:
    """Return the whole microsecond (in ms) that is nearest to a moment."""
    return round(at_ms * US_PER_MS) / US_PER_MS  # a tenth of what round(at_ms, 3) takes
