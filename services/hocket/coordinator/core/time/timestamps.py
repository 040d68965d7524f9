"""Times as Postgres stores them: whole microseconds. Times in a run's state are the same before
they are written and after they are read back, and so is everything derived from them (until 2**41
ms of the epoch, in 2039, when a float of milliseconds becomes too coarse)."""

US_PER_MS = 1_000


def not_before(at_ms: float) -> float:
    """Return the first whole microsecond (in ms) that is not before a time, so that a timer that
    has fired is due at it."""
    us = round(at_ms * US_PER_MS)
    whole = us / US_PER_MS
    return whole if whole >= at_ms else (us + 1) / US_PER_MS


def nearest(at_ms: float) -> float:
    """Return the whole microsecond (in ms) that is nearest to a time."""
    return round(at_ms * US_PER_MS) / US_PER_MS  # a tenth of the cost of round(at_ms, 3)
