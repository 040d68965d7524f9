"""The slots that pools reserve: some always for fast calls, some for interactive calls while these
arrive.

While interactive calls arrive, and for RESERVED_FOR_MS afterwards, other calls leave a share of
each pool and of each replica free (`PoolSpec.interactive_share`), so that no long call of another
class takes the last slot. If calls overflow to serverless backends, nothing is reserved.
"""

from collections.abc import Iterable, Mapping
from math import inf

from hocket.gateway.capacity.occupancy import Occupancy
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.core.routing.queue import QueueClass

RESERVED_FOR_MS = 10_000.0
"""How long after an interactive call slots stay reserved for the next one."""
ALL_CLASSES = tuple(QueueClass)
FAST_ONLY = (QueueClass.FAST,)
FAST_AND_INTERACTIVE = (QueueClass.FAST, QueueClass.INTERACTIVE)


class Reserve:
    """Decides which calls may take a slot of a pool."""

    def __init__(self, table: RoutingTable, occupancy: Occupancy) -> None:
        self._table = table
        self._occupancy = occupancy
        self._until_ms: dict[str, float] = {}
        self._pools_of: dict[str, tuple[str, ...]] = {}
        """The pools that reserve slots for a model's interactive calls, by model."""
        self._fast_ms: dict[str, float] = {}

    @property
    def until_ms(self) -> Mapping[str, float]:
        """Until when slots are reserved for interactive calls, by pool."""
        return self._until_ms

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table."""
        self._table = table
        self._pools_of, self._fast_ms = {}, {}

    def renew(self, model: str, now_ms: float) -> list[str]:
        """Reserve slots because an interactive call of a model arrived;
        return the pools that had none reserved."""
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
        """Return when the first of several pools stops reserving slots; None if none reserves any."""
        ends = [self._until_ms.get(pool, -inf) for pool in pools]
        return min((end for end in ends if end > now_ms), default=None)

    def fast_ms(self, model: str) -> float:
        """Return the longest duration that counts as fast in every pool of a model."""
        known = self._fast_ms.get(model)
        if known is None:
            pools = {spec.pool for spec in self._table.backends_of(model)}
            known = min(self._table.pools[pool].fast_ms for pool in pools)
            self._fast_ms[model] = known
        return known

    def admitted(
        self, pool: str, now_ms: float, *, replica_reserved: bool
    ) -> tuple[QueueClass, ...]:
        """Return the classes of calls that may take a slot of a pool as it is now.

        `replica_reserved` means that the free slot is at a replica with only reserved slots left.
        """
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
        """Return whether a pool has no free slots except reserved ones."""
        limit, slow_limit = self._occupancy.pool_limits(pool)
        slow = self._occupancy.pool_slow.get(pool, 0)
        reserved = self._occupancy.pool(pool).reserved_of(slow_limit)
        return slow >= slow_limit - reserved or self._occupancy.in_pool(pool) >= limit

    def replica_is_spent(self, spec: BackendSpec) -> bool:
        """Return whether a replica reserves slots and has no others free."""
        limit = self._occupancy.limit_of(spec)
        reserved = self._occupancy.pool(spec.pool).reserved_of(limit)
        return reserved > 0 and self._occupancy.at_replica(spec.key) >= limit - reserved
