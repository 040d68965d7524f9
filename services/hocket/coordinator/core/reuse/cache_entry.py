"""An entry of the step cache, and the rule for a step that asks for it: hit, compute, or wait.

An entry holds an output until it expires, a claim (by the step that computes it now), or both. A
claim ends when its time is up. If its holder is seen to have ended, it ends soon: the output or the
release is on the way, unless it was lost with a process.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

ENDED_CLAIM_MS = 2_000.0
"""How long a claim still holds once its step is seen to have ended."""


class Verdict(StrEnum):
    HIT = "hit"
    """The output is here."""
    COMPUTE = "compute"
    """It is the asking step's turn; the entry is claimed for it."""
    WAIT = "wait"
    """Another step computes it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who computes, and until when that holds off others. `holder_ended`: the computing step has
    ended."""

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
    """Return what an entry means for a step that accepts outputs up to `ttl_ms` old."""
    if (
        entry.filled_at_ms is not None
        and now_ms < entry.fresh_until_ms
        and now_ms < entry.filled_at_ms + ttl_ms
    ):
        return Verdict.HIT
    claim = entry.claim
    if claim is None or claim.until_ms <= now_ms:
        return Verdict.COMPUTE
    if (claim.run_id, claim.step) == (run_id, step):
        return Verdict.COMPUTE  # its own claim: it is asking again
    return Verdict.WAIT


def seen(claim: Claim, now_ms: float) -> Claim:
    """Return a claim that another step waits for: it ends soon if its holder has ended."""
    if not claim.holder_ended:
        return claim
    return replace(claim, until_ms=min(claim.until_ms, now_ms + ENDED_CLAIM_MS))
