"""Which processes live, as the entries of a bucket say: signs of life, and what is made of their age.

Each process writes an entry every so often; one that was not heard for a lease is taken for dead. After
the watch of the bucket began anew, and after this process itself stood still, the others get time to be
heard before they count as dead. While the watch is behind, nothing is decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from hocket.kit.nats.kv.entry import Entry, Leases

FIRST_BEAT_S = 0.02
"""How often a process looks whether the bucket is there, before its first sign of life."""
_MAX_STALE = 100
"""Keys that are read and not there any more, before all are read again."""
NEVER = float("-inf")

T = TypeVar("T")


class Liveness:
    """Who counts as living. `lease_s` is how long a sign of life lasts, `grace_s` how long those whose
    last sign is old are waited for by a process that has just started, or that stood still."""

    def __init__(self, *, lease_s: float, grace_s: float) -> None:
        self.lease_s = lease_s
        self.grace_s = grace_s
        self.current_since_s = NEVER
        """When the watch that was last looked at began; NEVER before the first."""
        self.trusted_since_s = NEVER
        """Signs that are older count as given then."""
        self._looked_at_s = NEVER

    def look(self, now_s: float, current_since_s: float) -> bool:
        """Take in since when the bucket is watched. Return whether it is watched anew, after it was
        before: what it had then may be gone."""
        stalled = self._looked_at_s > 0 and now_s - self._looked_at_s > self.lease_s / 2
        self._looked_at_s = now_s
        if current_since_s == NEVER:
            return False
        if current_since_s == self.current_since_s:
            if stalled:  # what others wrote meanwhile is about to be heard
                self.trusted_since_s = max(self.trusted_since_s, self._with_grace(now_s))
            return False
        again = self.current_since_s != NEVER
        self.trusted_since_s = now_s if again else self._with_grace(now_s)
        self.current_since_s = current_since_s
        return again

    def is_heard(self, at_s: float, now_s: float) -> bool:
        """Tell whether a process lives whose last sign was given then."""
        return now_s - max(at_s, self.trusted_since_s) <= self.lease_s

    def _with_grace(self, now_s: float) -> float:
        return now_s + self.grace_s - self.lease_s


class Contents(Generic[T]):
    """What entries say: each value is read once by `read`."""

    def __init__(self, leases: Leases, read: Callable[[Entry], T]) -> None:
        self._leases = leases
        self._read = read
        self._known: dict[str, tuple[bytes | None, T]] = {}

    def of(self, entry: Entry) -> T:
        """Return what an entry says."""
        known = self._known.get(entry.key)
        if known is None or known[0] is not entry.value:
            if len(self._known) > 2 * len(self._leases.entries) + _MAX_STALE:
                self._known.clear()
            known = self._known[entry.key] = (entry.value, self._read(entry))
        return known[1]


async def beat_for_ever(
    beat: Callable[[], Awaitable[None]], liveness: Liveness, beat_s: float
) -> None:
    """Give a sign of life every `beat_s`, once the bucket was read: before it may not be there."""
    while True:
        if liveness.current_since_s == NEVER:
            await asyncio.sleep(FIRST_BEAT_S)
            continue
        await beat()
        await asyncio.sleep(beat_s)


def take_out_dead(
    leases: Leases, prefix: str, heard_at_s: Mapping[str, float], live: frozenset[str], old_s: float
) -> list[tuple[str, int]]:
    """Take the entries of members out of memory that are dead and whose last sign is older than `old_s`
    (the loop's clock); return their keys and revisions, for them to be deleted."""
    found: list[tuple[str, int]] = []
    for name, at_s in heard_at_s.items():
        entry = leases.entries.get(prefix + name)
        if name not in live and at_s < old_s and entry is not None:
            del leases.entries[prefix + name]
            found.append((entry.key, entry.revision))
    return found
