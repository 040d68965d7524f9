"""All managed replicas: what is needed of each, and what the call scheduler is told about them.

An accepted run names the models of its nodes and when each begins (RunsExpected, sent to every
gateway). For each model without a running replica one is started, in order of when it must be
started. For nodes whose handler chooses the model, the models they called before are used. Calls
that found only cold replicas start the best of them. Each gateway that is not the leader reports to
the leader which replicas its calls use and miss (ReplicasUsed: `replica_news.py`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.config.table import BackendSpec, RoutingTable
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.warming.accounting import Book
from hocket.gateway.warming.drivers import build_driver
from hocket.gateway.warming.node_models import NodeModels
from hocket.gateway.warming.policy import MAX_RETAINED_MS
from hocket.gateway.warming.replica_manager import ReplicaManager
from hocket.gateway.warming.replica_news import ReplicaNews
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.kit.nats.bus import Bus
from hocket.schemas.messages import Attribution, ReplicasUsed, RunsExpected


class Warming:
    """Starts and stops replicas between `open` and `close`."""

    def __init__(
        self,
        bus: Bus,
        membership: Membership,
        scheduler: CallScheduler,
        *,
        now_ms: Callable[[], float],
        usage: ReplicaUsage,
        book: Book,
        metrics: GatewayMetrics,
    ) -> None:
        self._membership = membership
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._book = book
        self._metrics = metrics
        self._usage = usage
        self._managers: dict[str, ReplicaManager] = {}
        self._table = RoutingTable({})
        self._node_models = NodeModels()
        self._closing: dict[str, asyncio.Task[Any]] = {}
        """Closes the replaced manager of each replica, together with those before it."""
        self._news = ReplicaNews(
            bus, membership, usage, now_ms=now_ms, expect=self.expect, used=self._on_used
        )
        scheduler.observe_cold(self._on_missed)
        membership.observe(self._look)

    def use(self, routes: Routes) -> None:
        """Manage the replicas of these routes from now on."""
        before, self._managers = self._managers, {}
        self._table = routes.table
        for model, spec in _managed(routes.table):
            known = before.get(spec.key)
            if known is not None and known.spec == spec:
                self._managers[spec.key] = before.pop(spec.key)
                continue
            if known is not None:
                self._close(spec.key, before.pop(spec.key))
            self._managers[spec.key] = ReplicaManager(
                spec,
                model,
                build_driver(spec, routes.served[spec.key]),
                membership=self._membership,
                usage=self._usage,
                now_ms=self._now_ms,
                book=self._book,
                metrics=self._metrics,
                changed=self._update_scheduler,
                before=self._closing.get(spec.key),
            )
        for key, gone in before.items():
            self._close(key, gone)
        self._usage.manage(self._managers.keys())
        self._update_scheduler()

    async def open(self, routes: Routes) -> None:
        """Manage the replicas of these routes, and subscribe to news of runs and of other gateways."""
        self.use(routes)
        await self._news.open()

    async def close(self) -> None:
        """Stop managing; the replicas stay as they are."""
        await self._news.close()
        await asyncio.gather(*(manager.close() for manager in self._managers.values()))
        if self._closing:
            await asyncio.wait(self._closing.values())

    @property
    def managers(self) -> Mapping[str, ReplicaManager]:
        """The managers of the replicas, by replica key."""
        return self._managers

    def learn(self, model: str, caller: Attribution) -> None:
        """Remember that a node calls a model."""
        if self._managers:
            self._node_models.learn(model, caller)

    def expect(self, runs: RunsExpected) -> None:
        """Have the models of accepted runs ready when their nodes begin."""
        reason = f"runs of {runs.tenant}/{runs.pipeline}"
        needs: list[tuple[float, ReplicaManager, float]] = []
        for node in runs.nodes:
            at_ms = runs.accepted_at_ms + node.after_ms
            known = (
                (node.model,)
                if node.model is not None
                else self._node_models.of((runs.tenant, runs.pipeline, node.node))
            )
            for model in known:
                manager = self._manager_for(model)
                if manager is not None:
                    needs.append((manager.start_by_ms(at_ms), manager, at_ms))
        # a node may wait for the models of earlier nodes, so none is stopped before the last is
        # ready
        near_ms = min((at_ms for _, _, at_ms in needs), default=0.0) + MAX_RETAINED_MS
        last_ms = max(
            (manager.earliest_ms(at_ms) for _, manager, at_ms in needs if at_ms <= near_ms),
            default=0.0,
        )
        for _, manager, at_ms in sorted(needs, key=lambda need: need[0]):
            manager.need(reason, at_ms, last_ms)

    def _manager_for(self, model: str) -> ReplicaManager | None:
        """Return the replica of a model to start or keep up; None if one is always available."""
        if self._table.aliases.get(model, model) not in self._table.models:
            return None
        found = self._table.model(model)
        drained = self._scheduler.health.drained
        own = [
            spec
            for spec in found.backends
            if found.mode in ("auto", spec.hosting) and spec.key not in drained
        ]
        if any(spec.hosting == "dedicated" and spec.key not in self._managers for spec in own):
            return None
        managers = [self._managers[spec.key] for spec in own if spec.key in self._managers]
        return min(managers, key=_nearness, default=None)

    # ---- what happens ------------------------------------------------------------------------

    def _on_used(self, used: ReplicasUsed) -> None:
        for key, manager in self._managers.items():
            manager.used_elsewhere(used.busy_ms.get(key, 0.0), key in used.in_use)
        self._start(used.missed)

    def _on_missed(self, cold: Sequence[str]) -> None:
        """Handle a call that found cold replicas, given best first."""
        if self._membership.leads:
            self._start(cold)
        else:
            self._news.missed(cold)

    def _start(self, cold: Sequence[str]) -> None:
        """Start the first of these replicas, unless one of them is already starting."""
        managers = [self._managers[key] for key in cold if key in self._managers]
        starting = [manager for manager in managers if manager.active]
        for manager in (starting or managers)[:1]:
            manager.need("calls that wait", self._now_ms())

    def _look(self) -> None:
        for manager in self._managers.values():
            manager.look()

    def _close(self, key: str, gone: ReplicaManager) -> None:
        """Begin to close a manager; that of a replica that was removed and is back waits for it, too."""
        task = asyncio.create_task(gone.close(), name=f"close {key}")
        self._closing[key] = task
        task.add_done_callback(partial(self._closed, key))

    def _closed(self, key: str, task: "asyncio.Task[Any]") -> None:
        if self._closing.get(key) is task:
            del self._closing[key]
        if key not in self._managers:
            self._metrics.forget_warmth(key)

    def _update_scheduler(self) -> None:
        cold = {
            key: start
            for key, manager in self._managers.items()
            if (start := manager.cold_start) is not None
        }
        self._scheduler.use_cold(cold)


def _managed(table: RoutingTable) -> list[tuple[str, BackendSpec]]:
    return [
        (name, spec)
        for name, model in table.models.items()
        for spec in model.backends
        if spec.warm is not None
    ]


def _nearness(manager: ReplicaManager) -> tuple[bool, float]:
    start = manager.cold_start
    return (not manager.active, 0.0 if start is None else start.startup_ms)
