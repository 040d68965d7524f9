"""How warm a replica should be now: the highest level for which there is a lease.

A lease says that a replica is to be at a level during some period, and why: its configured tier, a
schedule, a forecast, an accepted run that will need it, calls that use it, or its minimum time
after a start. Action is taken early enough for the replica to be ready when the lease begins. As
long as any lease holds, the replica is not taken down, so a model is not loaded and unloaded over
and over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import inf

LATE_MS = 250.0
"""How much longer a start is assumed to take once it has reached its expected duration."""


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
    """A replica that is not ready: when it will be if it is starting,
    otherwise how long starting takes."""

    startup_ms: float
    ready_at_ms: float | None = None

    def expected_ms(self, now_ms: float) -> float:
        """Return when it can be ready, never a time in the past."""
        if self.ready_at_ms is None:
            return now_ms + max(self.startup_ms, LATE_MS)
        return max(self.ready_at_ms, now_ms + LATE_MS)


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps a replica at a level from `from_ms` until `until_ms`."""

    reason: str
    level: Level
    from_ms: float
    until_ms: float


@dataclass(frozen=True, slots=True)
class Want:
    """The level to hold or rise to now, the reason,
    and the next time that may change without a new lease."""

    level: Level
    reason: str
    changes_at_ms: float


def wanted(leases: Iterable[Lease], level: Level, startup: Startup, now_ms: float) -> Want:
    """Return what the leases require of a replica that is currently at `level`."""
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
