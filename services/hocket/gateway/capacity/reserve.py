"""The slots that pools reserve: some for fast calls always, some for interactive calls while they come.

While interactive calls come, and RESERVED_FOR_MS longer, others leave a share of each pool and of each
replica free (`PoolSpec.interactive_share`), so that a long call of another class does not have the last
slot. Where calls spill to somebody else's machines nothing is reserved.
"""

from collections.abc import Iterable, Mapping
from math import inf

from hocket.gateway.capacity.occupancy import Occupancy
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.routing.queue import QueueClass

RESERVED_FOR_MS = 10_000.0
"""For so long after an interactive call slots are reserved for the next one."""
ALL_CLASSES = tuple(QueueClass)
FAST_ONLY = (QueueClass.FAST,)
FAST_AND_INTERACTIVE = (QueueClass.FAST, QueueClass.INTERACTIVE)


class Reserve:
    """Says which calls may have a slot of a pool. `until_ms` is by pool."""

    def __init__(self, table: RoutingTable, occupancy: Occupancy) -> None:
        self._table = table
        self._occupancy = occupancy
        self._until_ms: dict[str, float] = {}
        self._pools_of: dict[str, tuple[str, ...]] = {}
        """By model: the pools that reserve slots for its interactive calls."""
        self._fast_ms: dict[str, float] = {}

    @property
    def until_ms(self) -> Mapping[str, float]:
        """By pool: until when slots are reserved for interactive calls."""
        return self._until_ms

    def replace(self, table: RoutingTable) -> None:
        """Go by another routing table."""
        self._table = table
        self._pools_of, self._fast_ms = {}, {}

    def renew(self, model: str, now_ms: float) -> list[str]:
        """Reserve slots for the interactive calls of a model, one of which has come; return the pools
        that had none reserved before."""
        pools = self._pools_of.get(model)
        if pools is None:
            found = self._table.model(model)
            pools = () if found.spills else tuple({spec.pool for spec in found.backends})
            self._pools_of[model] = pools
        begun = [pool for pool in pools if self._until_ms.get(pool, -inf) <= now_ms]
        for pool in pools:
            self._until_ms[pool] = now_ms + RESERVED_FOR_MS
        return begun

    def ends_at_ms(self, pools: Iterable[str], now_ms: float) -> float | None:
        """Return when the first of some pools stops reserving slots; None where none reserves any."""
        ends = [self._until_ms.get(pool, -inf) for pool in pools]
        return min((end for end in ends if end > now_ms), default=None)

    def fast_ms(self, model: str) -> float:
        """Return how long calls take at most that are fast in every pool of a model."""
        known = self._fast_ms.get(model)
        if known is None:
            pools = {spec.pool for spec in self._table.backends_of(model)}
            known = min(self._table.pools[pool].fast_ms for pool in pools)
            self._fast_ms[model] = known
        return known

    def admitted(
        self, pool: str, now_ms: float, *, replica_reserved: bool
    ) -> tuple[QueueClass, ...]:
        """Return the classes of calls that may have a slot of a pool as it is filled now;
        `replica_reserved`: the free slot is at a replica that has none left but reserved ones."""
        if pool not in self._table.pools:
            return ALL_CLASSES
        slow_limit = self._occupancy.pool_limits(pool)[1]
        if self._occupancy.pool_slow.get(pool, 0) >= slow_limit > 0:
            return FAST_ONLY
        reserves = self._until_ms.get(pool, -inf) > now_ms
        if reserves and (replica_reserved or self.pool_is_spent(pool)):
            return FAST_AND_INTERACTIVE
        return ALL_CLASSES

    def pool_is_spent(self, pool: str) -> bool:
        """Return whether a pool has no free slots but reserved ones, or none at all."""
        limit, slow_limit = self._occupancy.pool_limits(pool)
        slow = self._occupancy.pool_slow.get(pool, 0)
        reserved = self._occupancy.pool(pool).reserved_of(slow_limit)
        return slow >= slow_limit - reserved or self._occupancy.in_pool(pool) >= limit

    def replica_is_spent(self, spec: BackendSpec) -> bool:
        """Return whether a replica reserves slots and has no others free."""
        limit = self._occupancy.limit_of(spec)
        reserved = self._occupancy.pool(spec.pool).reserved_of(limit)
        return reserved > 0 and self._occupancy.at_replica(spec.key) >= limit - reserved
