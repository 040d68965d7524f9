"""Exact counts of the calls at each replica and in each pool, and the limits that apply to them
here.

Everything is updated on one event loop, so the counts are always exact.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from hocket.gateway.core.config.table import BackendSpec, PoolSpec, RoutingTable
from hocket.gateway.core.routing.replica_choice import limit_of, pool_limits

_REMOVED = PoolSpec(0)
"""Stands in for a pool that a reload removed; calls waiting for it are still looked at."""


class UsageTracker(Protocol):
    """Tracks when replicas have calls."""

    def began(self, key: str, at_ms: float) -> None:
        """Record that an idle replica got a call."""
        ...

    def ended(self, key: str, at_ms: float) -> None:
        """Record that a replica has no calls left."""
        ...


class Occupancy:
    """Counts calls by replica and by pool.

    `caps` are this gateway's parts of shared limits, by replica key and by `pool_cap`.
    """

    def __init__(self, table: RoutingTable, usage: UsageTracker | None = None) -> None:
        self.in_flight: Counter[str] = Counter()
        self.pool_in_flight: Counter[str] = Counter()
        self.pool_slow: Counter[str] = Counter()
        """The calls in each pool that are not fast."""
        self.caps: Mapping[str, int] = {}
        self._table = table
        self._usage = usage

    def replace(self, table: RoutingTable) -> None:
        """Use the limits of another routing table."""
        self._table = table

    def use_caps(self, caps: Mapping[str, int]) -> bool:
        """Use other parts of shared limits; return whether anything changed."""
        changed = caps != self.caps
        self.caps = caps
        return changed

    def add(self, spec: BackendSpec, now_ms: float, *, fast: bool) -> None:
        """Count a call at a replica."""
        self.in_flight[spec.key] += 1
        if self._usage is not None and self.in_flight[spec.key] == 1:
            self._usage.began(spec.key, now_ms)
        self.pool_in_flight[spec.pool] += 1
        if not fast:
            self.pool_slow[spec.pool] += 1

    def remove(self, spec: BackendSpec, now_ms: float, *, fast: bool) -> None:
        """Stop counting a call at a replica."""
        decrement(self.in_flight, spec.key)
        if self._usage is not None and spec.key not in self.in_flight:
            self._usage.ended(spec.key, now_ms)
        decrement(self.pool_in_flight, spec.pool)
        if not fast:
            decrement(self.pool_slow, spec.pool)

    def at_replica(self, key: str) -> int:
        """Return how many calls are at a replica."""
        return self.in_flight.get(key, 0)

    def in_pool(self, pool: str) -> int:
        """Return how many calls are in a pool's slots."""
        return self.pool_in_flight.get(pool, 0)

    def limit_of(self, spec: BackendSpec) -> int:
        """Return how many calls this gateway may have at a replica."""
        return limit_of(self.caps, spec)

    def pool(self, pool: str) -> PoolSpec:
        """Return a pool; one without slots if a reload removed it."""
        return self._table.pools.get(pool, _REMOVED)

    def pool_limits(self, pool: str) -> tuple[int, int]:
        """Return how many calls this gateway may have in a pool, and how many that are not fast."""
        return pool_limits(self.caps, pool, self.pool(pool))


def decrement(counter: Counter[str], key: str) -> None:
    """Decrement a count, removing the key at 0."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
