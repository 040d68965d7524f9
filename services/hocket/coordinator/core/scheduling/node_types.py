"""The node types of the gate, with what workers can do of each: announced slots, windows, rates."""

from collections.abc import Callable, Mapping
from typing import Literal

from hocket.coordinator.core.scheduling.fifo import FifoQueue
from hocket.coordinator.core.scheduling.priority_queue import Waiting
from hocket.coordinator.core.scheduling.type_queue import Capacity, Load, TypeQueue
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.schemas.worker_slots import WorkerSlots

Order = Literal["slack", "arrival"]

UNSERVED = "unserved"
"""Stands in for all node types that no worker runs."""
MAX_TYPES = 1_000
"""How many node types are tracked separately because some worker announced them."""


class NodeTypes:
    """The node types of one gate, which documents the options. `may_more` is called with a type
    when its window grew and steps of it wait."""

    def __init__(
        self,
        weights: Mapping[str, float] | None,
        *,
        order: Order,
        interactive_share: float,
        tenant_reserve: float,
        holds_unserved: bool,
        may_more: Callable[[str], None],
    ) -> None:
        self.by_name: dict[str, TypeQueue] = {}
        """Only for reading; use `add` to add a type."""
        self._may_more = may_more
        self._holds_unserved = holds_unserved
        self._weights = dict(weights or {})
        self._order = order
        self._interactive_share = 0.0 if order == "arrival" else interactive_share
        self._tenant_reserve = 0.0 if order == "arrival" else tenant_reserve
        self._workers = WorkerSlots()
        self._share = 1.0
        self._ticked_at_ms: float | None = None

    def add(self, node_type: str) -> TypeQueue:
        """Add a node type, of which nothing waits or is out yet."""
        waiting = FifoQueue() if self._order == "arrival" else Waiting(self._weights)
        holds = self._holds_unserved and node_type not in WORKER_TYPES
        kind = self.by_name[node_type] = TypeQueue(
            waiting,
            self._interactive_share,
            holds_unserved=holds,
            tenant_reserve=self._tenant_reserve,
        )
        return kind

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> None:
        """Note what slots a worker has; none if it leaves. `pool` is that of the key with which it
        announces itself."""
        self._count_slots(self._workers.announced(worker, slots, now_ms, pool), now_ms)

    def hears_again(self, now_ms: float) -> None:
        """Count no silence before this moment, because no worker could be heard."""
        self._workers.hears_again(now_ms)

    def shares(self, share: float) -> None:
        """Use this share of every capacity (0 to 1): the rest belongs to other coordinators."""
        if share != self._share:
            self._share = share
            for node_type, kind in self.by_name.items():
                self._set_window(node_type, kind)

    def tick(self, now_ms: float) -> None:
        """Measure rates and forget silent workers; to be called a few times a second."""
        since_ms = now_ms - (self._ticked_at_ms if self._ticked_at_ms is not None else now_ms)
        self._ticked_at_ms = now_ms
        for worker in self._workers.silent(now_ms):
            self.announced(worker, {}, now_ms)
        for node_type, kind in list(self.by_name.items()):
            kind.take_slots(self._workers.slots(node_type), now_ms)
            kind.measure(since_ms, now_ms)
            self._set_window(node_type, kind)
            if kind.is_idle and node_type not in WORKER_TYPES:
                del self.by_name[node_type]

    def capacity(self, node_type: str, priority: Priority) -> Capacity:
        """Return what a node type can do now for a class, in the partitions of this coordinator."""
        kind = self.by_name.get(node_type)
        return Capacity(0.0, 0.0) if kind is None else kind.capacity(priority, self._share)

    def loads(self) -> dict[str, Load]:
        """Return the load of every node type. Types that no worker runs, except built-in ones, are
        combined under UNSERVED, because anyone can make up their names."""
        loads: dict[str, Load] = {}
        unserved = [0, 0]
        for name, kind in self.by_name.items():
            load = kind.load()
            if load.slots or name in WORKER_TYPES:
                loads[name] = load
            else:
                unserved[0] += load.held
                unserved[1] += load.out
        held, out = unserved
        return {**loads, UNSERVED: Load(held=held, out=out, slots=0, window=0, rate_per_s=0.0)}

    def _count_slots(self, changed: set[str], now_ms: float) -> None:
        """Update the slots of the types for which workers announced a different number."""
        for node_type in changed:
            found = self._workers.slots(node_type)
            if found and node_type not in self.by_name and len(self.by_name) < MAX_TYPES:
                self.add(node_type)
            kind = self.by_name.get(node_type)
            if kind is not None:
                kind.take_slots(found, now_ms)
                self._set_window(node_type, kind)

    def _set_window(self, node_type: str, kind: TypeQueue) -> None:
        if kind.set_window(self._share) and len(kind.waiting):
            self._may_more(node_type)
