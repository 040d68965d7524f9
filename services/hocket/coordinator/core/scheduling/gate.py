"""The dispatch gate: which ready steps go to the workers now, and which wait here for a free slot.

A step that is in a stream cannot be overtaken any more, so only as many are handed out as keep the
workers busy: per node type a *window* of the slots that workers announced, a spare few, and what
finishes in `LEAD_MS` (`type_queue.py`). A ready step goes out at once while fewer are *out* (handed
out and not finished); beyond it waits, and goes in the order of `priority_queue.py` as steps finish.
While interactive steps come, steps of other classes leave a share of the slots free for them, and one
tenant's steps do for other tenants', where slots become free so seldom that the wait for one counts: a
slot is not taken back from a step that has it. A built-in node type that no worker announced is not
gated: its steps wait in the stream, where autoscalers see them. Those of types of somebody's own, and
of queues, are held (`holds_unserved`): anybody can name one that no worker will ever take out of the
stream.

States of an attempt here: unknown -> (held ->) out -> unknown. A cancelled one that is held is
forgotten; one that is out counts until its end is heard, `LEAVING_MS` at most. Nothing here is
durable: a new owner offers again whatever its runs' state calls dispatched.
"""

from collections import deque
from collections.abc import Mapping
from typing import Literal

from hocket.coordinator.core.scheduling.fifo import FifoQueue
from hocket.coordinator.core.scheduling.priority_queue import Ready, Waiting
from hocket.coordinator.core.scheduling.tenant_reserve import TENANT_RESERVE
from hocket.coordinator.core.scheduling.type_queue import (
    INTERACTIVE_SHARE,
    Capacity,
    Load,
    TypeQueue,
)
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.schemas.worker_slots import WorkerSlots

Order = Literal["slack", "arrival"]

LEAVING_MS = 5_000.0
UNSERVED = "unserved"
"""Stands for the node types that no worker runs."""
MAX_TYPES = 1_000
"""Node types that are told apart because some worker announced them."""
MAX_HELD = 500_000
"""Steps of one type held here; further ones go to the stream, which is on disk."""


class Gate:
    """Hands out ready attempts, or holds them. `weights`: of tenants; 1 for those without. `order`:
    what waits goes by `priority_queue.py`, or as it came (`fifo.py`; nothing is kept free then).
    `interactive_share`: of the slots, to be kept free while interactive steps come; `tenant_reserve`:
    of the slots, what no single tenant takes while others' steps come. `holds_unserved`: steps of a
    type of somebody's own, or of a queue, wait here until a worker announces it."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        order: Order = "slack",
        interactive_share: float = INTERACTIVE_SHARE,
        tenant_reserve: float = TENANT_RESERVE,
        holds_unserved: bool = True,
    ) -> None:
        self._holds_unserved = holds_unserved
        self._weights = dict(weights or {})
        self._order = order
        self._interactive_share = 0.0 if order == "arrival" else interactive_share
        self._tenant_reserve = 0.0 if order == "arrival" else tenant_reserve
        self._types: dict[str, TypeQueue] = {}
        self._out: dict[str, Ready] = {}
        self._held: dict[str, TypeQueue] = {}
        """Where an attempt waits."""
        self._workers = WorkerSlots()
        self._leaving: deque[tuple[float, str]] = deque()
        self._to_release: set[str] = set()
        self._share = 1.0
        self._ticked_at_ms: float | None = None

    # ---- steps ------------------------------------------------------------------------------

    def offer(self, step: Ready) -> bool:
        """Take a ready attempt; tell whether it goes out now. One that is out already goes again (the
        stream drops the repeat), one that is held stays so."""
        if step.attempt_id in self._out:
            return True
        kind = self._types.get(step.type)
        if kind is None:
            kind = self._types[step.type] = self._new_type(step.type)
        held, window = len(kind.waiting), kind.window_for(step)
        if (held or kind.out >= window) and held < MAX_HELD:
            kind.waiting.push(step)
            self._held[step.attempt_id] = kind
            self._to_release.add(step.type)
            return False
        self._hand_out(kind, step)
        return True

    def finished(self, attempt_id: str) -> Ready | None:
        """Note that an attempt has ended, and return it where it was out or held here."""
        step = self._out.pop(attempt_id, None)
        if step is None:
            return self._drop(attempt_id)
        kind = self._types[step.type]
        kind.finished(step)
        self._free(kind, step)
        return step

    def cancel(self, attempt_id: str, now_ms: float) -> bool:
        """Give up an attempt; tell whether a worker may have it and must hear of it."""
        held = self._drop(attempt_id)
        if held is not None:
            return held.again
        if attempt_id in self._out:
            self._leaving.append((now_ms + LEAVING_MS, attempt_id))
        return True

    def release(self, now_ms: float) -> list[Ready]:
        """Return the held attempts that go out now, in order."""
        if not self._to_release:
            return []
        released: list[Ready] = []
        for node_type in sorted(self._to_release):
            kind = self._types[node_type]
            while len(kind.waiting) and kind.out < kind.window:
                barred = kind.tenants.barred
                if kind.out >= kind.others and not kind.waiting.has_right_of_way(barred):
                    break
                step = kind.waiting.pop(now_ms, kind.runs_out, kind.run_share(), barred)
                if step is None:
                    break
                del self._held[step.attempt_id]
                self._hand_out(kind, step)
                released.append(step)
        self._to_release.clear()
        return released

    def forget(self, partition: int) -> None:
        """Drop every attempt of a partition: it has another owner now."""
        for step in [s for s in self._out.values() if s.partition == partition]:
            del self._out[step.attempt_id]
            self._free(self._types[step.type], step)
        for node_type, kind in self._types.items():
            for step in kind.waiting.steps():
                if step.partition == partition:
                    self._drop(step.attempt_id)
            self._to_release.add(node_type)

    # ---- capacity ---------------------------------------------------------------------------

    def announced(
        self, worker: str, slots: Mapping[str, int], now_ms: float, pool: str = ""
    ) -> None:
        """Note what a worker can do; nothing, where it leaves. `pool` is that of whoever announces
        himself with a key."""
        self._count_slots(self._workers.announced(worker, slots, now_ms, pool), now_ms)

    def hears_again(self, now_ms: float) -> None:
        """Count no silence before this moment: nobody could be heard."""
        self._workers.hears_again(now_ms)

    def shares(self, share: float) -> None:
        """Use this part of every capacity (0 to 1): the rest is other coordinators'."""
        if share != self._share:
            self._share = share
            for node_type, kind in self._types.items():
                self._set_window(node_type, kind)

    def tick(self, now_ms: float) -> None:
        """Measure rates, forget who is silent; call it a few times a second."""
        since_ms = now_ms - (self._ticked_at_ms if self._ticked_at_ms is not None else now_ms)
        self._ticked_at_ms = now_ms
        for worker in self._workers.silent(now_ms):
            self.announced(worker, {}, now_ms)
        for node_type, kind in list(self._types.items()):
            kind.take_slots(self._workers.slots(node_type), now_ms)
            kind.measure(since_ms, now_ms)
            self._set_window(node_type, kind)
            if kind.is_idle and node_type not in WORKER_TYPES:
                del self._types[node_type]
                self._to_release.discard(node_type)
        while self._leaving and self._leaving[0][0] <= now_ms:
            _, attempt_id = self._leaving.popleft()
            step = self._out.pop(attempt_id, None)
            if step is not None:
                self._free(self._types[step.type], step)

    def capacity(self, node_type: str, priority: Priority) -> Capacity:
        """Return what a node type can do now for a class, in the partitions of this coordinator."""
        kind = self._types.get(node_type)
        return Capacity(0.0, 0.0) if kind is None else kind.capacity(priority, self._share)

    def loads(self) -> dict[str, Load]:
        """Return how every node type is doing; those that nobody runs, built-in ones apart, together as
        UNSERVED, since their names are anybody's."""
        loads: dict[str, Load] = {}
        unserved = [0, 0]
        for name, kind in self._types.items():
            load = kind.load()
            if load.slots or name in WORKER_TYPES:
                loads[name] = load
            else:
                unserved[0] += load.held
                unserved[1] += load.out
        held, out = unserved
        return {**loads, UNSERVED: Load(held=held, out=out, slots=0, window=0, rate_per_s=0.0)}

    # ---- helpers ----------------------------------------------------------------------------

    def _new_type(self, node_type: str) -> TypeQueue:
        waiting = FifoQueue() if self._order == "arrival" else Waiting(self._weights)
        holds = self._holds_unserved and node_type not in WORKER_TYPES
        return TypeQueue(
            waiting,
            self._interactive_share,
            holds_unserved=holds,
            tenant_reserve=self._tenant_reserve,
        )

    def _hand_out(self, kind: TypeQueue, step: Ready) -> None:
        self._out[step.attempt_id] = step
        kind.hand_out(step)

    def _drop(self, attempt_id: str) -> Ready | None:
        kind = self._held.pop(attempt_id, None)
        return None if kind is None else kind.waiting.remove(attempt_id)

    def _free(self, kind: TypeQueue, step: Ready) -> None:
        kind.free(step)
        if len(kind.waiting):
            self._to_release.add(step.type)

    def _count_slots(self, changed: set[str], now_ms: float) -> None:
        """Take up the slots of the types for which workers announced another number."""
        for node_type in changed:
            found = self._workers.slots(node_type)
            if found and node_type not in self._types and len(self._types) < MAX_TYPES:
                self._types[node_type] = self._new_type(node_type)
            kind = self._types.get(node_type)
            if kind is not None:
                kind.take_slots(found, now_ms)
                self._set_window(node_type, kind)

    def _set_window(self, node_type: str, kind: TypeQueue) -> None:
        if kind.set_window(self._share) and len(kind.waiting):
            self._to_release.add(node_type)
