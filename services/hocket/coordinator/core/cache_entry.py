"""An entry of the step cache, and the rule for who asks it: hit, compute, or wait.

An entry holds an output until it expires, a claim (the step that computes it now), or both. A claim is
over when its time is up or its holder has ended without filling it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    HIT = "hit"
    """The output is here."""
    COMPUTE = "compute"
    """It is the asking step's turn; the entry is claimed for it."""
    WAIT = "wait"
    """Another step computes it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who computes, and how long that holds off others. `holder_ended`: its step has ended."""

    run_id: str
    step: str
    until_ms: float
    holder_ended: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known under a key. Times are the database's."""

    filled_at_ms: float | None = None
    fresh_until_ms: float = 0.0
    claim: Claim | None = None


def verdict(entry: Entry, *, run_id: str, step: str, ttl_ms: float, now_ms: float) -> Verdict:
    """Return what an entry means for a step that takes outputs up to `ttl_ms` old."""
    if (
        entry.filled_at_ms is not None
        and now_ms < entry.fresh_until_ms
        and now_ms < entry.filled_at_ms + ttl_ms
    ):
        return Verdict.HIT
    claim = entry.claim
    if claim is None or claim.until_ms <= now_ms or claim.holder_ended:
        return Verdict.COMPUTE
    if (claim.run_id, claim.step) == (run_id, step):
        return Verdict.COMPUTE  # its own: it asks again
    return Verdict.WAIT
