"""When managed replicas have calls, from this gateway and from others."""

from collections.abc import Set
from math import inf


class ReplicaUsage:
    """How long each replica was busy, and when it was last used; times are epoch milliseconds."""

    def __init__(self) -> None:
        self._managed: Set[str] = frozenset()
        self._since_ms: dict[str, float] = {}
        self._busy_ms: dict[str, float] = {}
        self._last_ms: dict[str, float] = {}

    def manage(self, keys: Set[str]) -> None:
        """Track the use of these replicas from now on."""
        self._managed = keys

    @property
    def is_managed(self) -> bool:
        """Whether any replicas are tracked."""
        return bool(self._managed)

    def began(self, key: str, at_ms: float) -> None:
        """Record that an idle replica got a call."""
        if key in self._managed:
            self._since_ms[key] = at_ms

    def ended(self, key: str, at_ms: float) -> None:
        """Record that a replica has no calls left."""
        since_ms = self._since_ms.pop(key, None)
        if since_ms is not None:
            busy_ms = self._busy_ms.get(key, 0.0)
            self._busy_ms[key] = busy_ms + max(at_ms - since_ms, 0.0)
            self._last_ms[key] = at_ms

    def last_used_ms(self, key: str) -> float:
        """Return when a replica last had a call: inf while it has one, -inf if it never had."""
        return inf if key in self._since_ms else self._last_ms.get(key, -inf)

    def in_use(self) -> tuple[str, ...]:
        """Return the replicas that have calls now."""
        return tuple(self._since_ms)

    def take(self, key: str, now_ms: float) -> float:
        """Return for how long a replica was busy since the previous query."""
        busy_ms = self._busy_ms.pop(key, 0.0)
        since_ms = self._since_ms.get(key)
        if since_ms is not None:
            busy_ms += max(now_ms - since_ms, 0.0)
            self._since_ms[key] = max(now_ms, since_ms)
        return busy_ms

    def take_all(self, now_ms: float) -> dict[str, float]:
        """Return the same as `take` for every replica that was busy."""
        keys = {*self._busy_ms, *self._since_ms}
        return {key: self.take(key, now_ms) for key in sorted(keys)}
