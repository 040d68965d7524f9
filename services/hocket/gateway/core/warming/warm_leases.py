"""How warm a replica should be now: the highest level that somebody has a lease on.

A lease says that a replica is to be at a level from one moment to another, and why: the tier that it is
kept at, a schedule, a forecast, a run that was accepted and will need it, calls that use it, the least
time that it stays once it is up. It is acted on early enough for the replica to be there in time. As
long as any lease holds, nothing goes down; so a model is not loaded and unloaded in turns.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import inf

LATE_MS = 250.0
"""How much longer a start is expected to take that has taken as long as expected."""


class Level(IntEnum):
    """How warm: no machine, a machine without the model, the model loaded."""

    COLD = 0
    PROVISIONED = 1
    READY = 2


@dataclass(frozen=True, slots=True)
class Startup:
    """How long a replica takes to get a machine, and to load the model on it."""

    provision_ms: float = 0.0
    load_ms: float = 0.0

    def between(self, level: Level, wanted: Level) -> float:
        """Return how long it takes from one level up to another."""
        provision = level < Level.PROVISIONED <= wanted
        load = level < Level.READY <= wanted
        return provision * self.provision_ms + load * self.load_ms


@dataclass(frozen=True, slots=True)
class ColdStart:
    """A replica that is not ready: when it will be if it is starting, else how long it takes."""

    startup_ms: float
    ready_at_ms: float | None = None

    def expected_ms(self, now_ms: float) -> float:
        """Return when it can be ready; never a moment that has passed."""
        if self.ready_at_ms is None:
            return now_ms + max(self.startup_ms, LATE_MS)
        return max(self.ready_at_ms, now_ms + LATE_MS)


@dataclass(frozen=True, slots=True)
class Lease:
    """A replica shall be at this level from `from_ms` until `until_ms`."""

    reason: str
    level: Level
    from_ms: float
    until_ms: float


@dataclass(frozen=True, slots=True)
class Want:
    """The level to be at or to rise to now, for what reason, and when that may change by itself."""

    level: Level
    reason: str
    changes_at_ms: float


def wanted(leases: Iterable[Lease], level: Level, startup: Startup, now_ms: float) -> Want:
    """Return what the leases want of a replica that is at `level` now."""
    best, reason, changes_at_ms = Level.COLD, "", inf
    for lease in leases:
        if lease.until_ms <= now_ms:
            continue
        act_at_ms = lease.from_ms - startup.between(level, lease.level)
        if act_at_ms > now_ms:
            changes_at_ms = min(changes_at_ms, act_at_ms)
            continue
        changes_at_ms = min(changes_at_ms, lease.until_ms)
        if lease.level > best:
            best, reason = lease.level, lease.reason
    return Want(best, reason, changes_at_ms)
