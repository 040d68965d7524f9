"""What a gateway reports of its replicas: their calls, whether they receive any, and why not."""

from collections.abc import Callable, Mapping

from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.operations.replica_orders import ReplicaOrders
from hocket.gateway.warming.replica_manager import ReplicaManager
from hocket.schemas.messages import ReplicaState

LEVELS = ("cold", "provisioned", "ready")


class ReplicaStates:
    """The replicas of the table in force, as seen from here."""

    def __init__(
        self,
        scheduler: CallScheduler,
        table: Callable[[], RoutingTable],
        managers: Callable[[], Mapping[str, ReplicaManager]],
        orders: ReplicaOrders,
        now_ms: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._table = table
        self._managers = managers
        self._orders = orders
        self._now_ms = now_ms

    def all(self) -> tuple[ReplicaState, ...]:
        """Return all replicas, in configuration order."""
        table = self._table()
        serves: dict[str, list[str]] = {}
        for name in table.names():
            for spec in table.serving(name):
                serves.setdefault(spec.key, []).append(name)
        return tuple(self._state(spec, serves.get(spec.key, [])) for spec in table.backends())

    def _state(self, spec: BackendSpec, models: list[str]) -> ReplicaState:
        now_ms = self._now_ms()
        in_use, waiting = self._scheduler.demand(spec.pool, spec)
        health = self._scheduler.health
        breaker = health.breakers[spec.key]
        order = self._orders.of(spec.key)
        manager = self._managers().get(spec.key)
        start = None if manager is None else manager.cold_start
        return ReplicaState(
            replica=spec.key,
            backend=spec.name,
            kind=spec.kind,
            models=tuple(models),
            breaker=str(breaker.state),
            openings=breaker.openings,
            in_flight=in_use,
            waiting=waiting,
            waiting_by_class={
                str(one): number
                for one, number in self._scheduler.queue.lines.waiting_by_class(spec.pool).items()
            },
            limit=spec.limit,
            rests_ms=round(max(health.resting_until_ms.get(spec.key, 0.0) - now_ms, 0.0)),
            level="" if manager is None else LEVELS[manager.level],
            ready_at_ms=None if start is None else start.ready_at_ms,
            drained=order.drained,
            warm_until_ms=order.warm_until_ms if order.warm_until_ms > now_ms else None,
            reason=order.reason,
            by=order.by,
            changed_at_ms=order.at_ms or None,
        )
