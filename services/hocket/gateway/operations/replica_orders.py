"""Operators' orders for replicas, kept in the gateways' bucket so that all gateways follow them,
including those that start later.

An order is written on condition that nobody wrote in between, and takes effect here as soon as it
is in the bucket. A replica removed from the configuration keeps its order, which applies again when
it returns.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.capacity.replica_health import ReplicaHealth
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.errors import (
    BackendUnknown,
    ReplicaNotStarted,
    ReplicasNotTold,
    ReplicaUnknown,
)
from hocket.gateway.core.routing.membership_records import ORDER
from hocket.gateway.core.routing.replica_orders import ReplicaOrder, order_of
from hocket.gateway.warming.replica_manager import ReplicaManager
from hocket.schemas.checks.bounded import MAX_NAME_CHARS
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.messages import ReplicaControl

TRIES = 5
"""How often writing an order is tried when others write about the same replica."""
PAUSE_S = 0.1


class ReplicaOrders:
    """Follows operators' orders for the replicas of the table in force."""

    def __init__(
        self,
        membership: Membership,
        health: ReplicaHealth,
        table: Callable[[], RoutingTable],
        managers: Callable[[], Mapping[str, ReplicaManager]],
        now_ms: Callable[[], float],
    ) -> None:
        self._membership = membership
        self._health = health
        self._table = table
        self._managers = managers
        self._now_ms = now_ms
        self._orders: dict[str, ReplicaOrder] = {}
        self._reset_at_ms: dict[str, float] = {}
        membership.observe(self.look)

    def of(self, key: str) -> ReplicaOrder:
        """Return the order for a replica; an empty one if none was given."""
        return self._orders.get(key, ReplicaOrder(key))

    def look(self) -> None:
        """Apply the orders now in the bucket."""
        for _, _, content in self._membership.told(ORDER):
            if content is not None:
                order = order_of(content)
                self._orders[order.replica] = order
        drained = {key: one.blame for key, one in self._orders.items() if one.drained}
        self._health.use_drained(drained)
        for key, manager in self._managers().items():
            manager.keep(self.of(key).warm_until_ms)
        for key, order in self._orders.items():
            if order.reset_at_ms > self._reset_at_ms.get(key, 0.0):
                self._reset_at_ms[key] = order.reset_at_ms
                self._health.reset(key)

    async def control(self, wanted: ReplicaControl) -> None:
        """Have all gateways apply a control to a backend's replicas.

        Raises BackendUnknown, ReplicaUnknown, ReplicaNotStarted, and ReplicasNotTold if only some
        or none were changed.
        """
        for key in self._meant(wanted):
            await self._write(key, wanted)
        self.look()

    def _meant(self, wanted: ReplicaControl) -> list[str]:
        specs = self._table().backends()
        keys = [spec.key for spec in specs if spec.name == wanted.backend]
        if not keys:
            name = shown_text(wanted.backend, MAX_NAME_CHARS)
            raise BackendUnknown(backend=name, known=_listed({s.name for s in specs}))
        if wanted.replica:
            if wanted.replica not in keys:
                name = shown_text(wanted.replica, MAX_NAME_CHARS)
                raise ReplicaUnknown(backend=wanted.backend, replica=name, known=_listed(keys))
            keys = [wanted.replica]
        if wanted.action == "warm":
            for key in keys:
                if key not in self._managers():
                    raise ReplicaNotStarted(replica=key)
        return keys

    async def _write(self, key: str, wanted: ReplicaControl) -> None:
        place = hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
        for _ in range(TRIES):
            told = self._membership.told(ORDER)
            revision = next((known for name, known, _ in told if name == place), 0)
            order = self.of(key).after(wanted, self._now_ms())
            content = order.content()
            if await self._membership.put(ORDER + place, content, revision=revision) is not None:
                self._orders[key] = order
                return
            await asyncio.sleep(PAUSE_S)
            self.look()
        raise ReplicasNotTold(backend=wanted.backend)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
