"""Which processes are alive, judged by the age of their heartbeats, which are entries of a bucket.

Each process writes its entry periodically; one that was not heard for the length of a lease is taken for
dead. After the watch of the bucket restarts, and after this process itself was stalled, the others get
time to be heard before they count as dead. While the watch is behind, nothing is decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from hocket.kit.nats.kv.entry import Entry, Leases

FIRST_BEAT_S = 0.02
"""How often a process checks whether the bucket was read, before its first heartbeat."""
_MAX_STALE = 100
"""Stale keys that may be remembered before all values are read again."""
NEVER = float("-inf")

T = TypeVar("T")


class Liveness:
    """Who counts as alive. A heartbeat is valid for `lease_s`. A process that has just started, or was
    stalled, waits `grace_s` for those whose last heartbeat is old."""

    def __init__(self, *, lease_s: float, grace_s: float) -> None:
        self.lease_s = lease_s
        self.grace_s = grace_s
        self.current_since_s = NEVER
        """When the current watch began, as of the last `look`; NEVER before the first."""
        self.trusted_since_s = NEVER
        """Older heartbeats count as if given at this time."""
        self._looked_at_s = NEVER

    def look(self, now_s: float, current_since_s: float) -> bool:
        """Note since when the bucket has been watched. Return whether the watch has restarted since an
        earlier one: what the bucket held then may be gone."""
        stalled = self._looked_at_s > 0 and now_s - self._looked_at_s > self.lease_s / 2
        self._looked_at_s = now_s
        if current_since_s == NEVER:
            return False
        if current_since_s == self.current_since_s:
            if stalled:  # what others wrote in the meantime is about to be heard
                self.trusted_since_s = max(self.trusted_since_s, self._with_grace(now_s))
            return False
        again = self.current_since_s != NEVER
        self.trusted_since_s = now_s if again else self._with_grace(now_s)
        self.current_since_s = current_since_s
        return again

    def is_heard(self, at_s: float, now_s: float) -> bool:
        """Tell whether a process is alive whose last heartbeat was given at `at_s`."""
        return now_s - max(at_s, self.trusted_since_s) <= self.lease_s

    def _with_grace(self, now_s: float) -> float:
        return now_s + self.grace_s - self.lease_s


class Contents(Generic[T]):
    """The parsed contents of entries: each value is parsed once, by `read`."""

    def __init__(self, leases: Leases, read: Callable[[Entry], T]) -> None:
        self._leases = leases
        self._read = read
        self._known: dict[str, tuple[bytes | None, T]] = {}

    def of(self, entry: Entry) -> T:
        """Return the parsed content of an entry."""
        known = self._known.get(entry.key)
        if known is None or known[0] is not entry.value:
            if len(self._known) > 2 * len(self._leases.entries) + _MAX_STALE:
                self._known.clear()
            known = self._known[entry.key] = (entry.value, self._read(entry))
        return known[1]


async def beat_for_ever(
    beat: Callable[[], Awaitable[None]], liveness: Liveness, beat_s: float
) -> None:
    """Give a heartbeat every `beat_s`, once the bucket was read: before that, it may not exist."""
    while True:
        if liveness.current_since_s == NEVER:
            await asyncio.sleep(FIRST_BEAT_S)
            continue
        await beat()
        await asyncio.sleep(beat_s)


def take_out_dead(
    leases: Leases, prefix: str, heard_at_s: Mapping[str, float], live: frozenset[str], old_s: float
) -> list[tuple[str, int]]:
    """Remove from memory the entries of members that are dead and whose last heartbeat is older than
    `old_s` (the loop's clock); return their keys and revisions, to be deleted from the bucket."""
    found: list[tuple[str, int]] = []
    for name, at_s in heard_at_s.items():
        entry = leases.entries.get(prefix + name)
        if name not in live and at_s < old_s and entry is not None:
            del leases.entries[prefix + name]
            found.append((entry.key, entry.revision))
    return found
