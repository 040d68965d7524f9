"""The dispatch gate: which ready steps go to the workers now, and which wait here for a free slot.

A step in a stream can no longer be overtaken, so only as many are handed out as keep the workers
busy: per node type a *window* of the slots that workers announced, a few spare ones, and what
finishes in `LEAD_MS` (`type_queue.py`). A ready step goes out at once while fewer than that are
*out* (handed out and not finished); others wait, and go out in the order of `priority_queue.py` as
steps finish. While interactive steps arrive, steps of other classes leave a share of the slots free
for them, and one tenant's steps leave a share for other tenants, if slots become free so seldom
that the wait for one matters: a slot is not taken back from a step that has it. A built-in node
type that no worker announced is not gated: its steps wait in the stream, where autoscalers see
them. Steps of custom types and of queues are held (`holds_unserved`): anyone can name one that no
worker will ever take out of the stream.

States of an attempt here: unknown -> (held ->) out -> unknown. A cancelled attempt is forgotten if
it is held; if it is out, it counts until its end is reported, for `LEAVING_MS` at most. Nothing
here is durable: a new owner offers again whatever is dispatched by its runs' state.
"""

from collections import deque
from collections.abc import Mapping

from hocket.coordinator.core.scheduling.node_types import NodeTypes, Order
from hocket.coordinator.core.scheduling.priority_queue import Ready
from hocket.coordinator.core.scheduling.tenant_reserve import TENANT_RESERVE
from hocket.coordinator.core.scheduling.type_queue import (
    INTERACTIVE_SHARE,
    TypeQueue,
)

LEAVING_MS = 5_000.0
MAX_HELD = 500_000
"""How many steps of one type are held here; any more go to the stream, which is on disk."""


class Gate:
    """Hands out ready attempts, or holds them. `weights` are those of tenants; a tenant without one
    has 1. `order`: waiting steps go out by `priority_queue.py`, or as they came (`fifo.py`; nothing
    is kept free then). `interactive_share`: the share of the slots to keep free while interactive
    steps arrive; `tenant_reserve`: the share that no single tenant takes while others' steps
    arrive. `holds_unserved`: steps of a custom type, or of a queue, wait here until a worker
    announces it."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        order: Order = "slack",
        interactive_share: float = INTERACTIVE_SHARE,
        tenant_reserve: float = TENANT_RESERVE,
        holds_unserved: bool = True,
    ) -> None:
        self._to_release: set[str] = set()
        """Node types of which more steps may go out than before, or that have more steps waiting."""
        self.types = NodeTypes(
            weights,
            order=order,
            interactive_share=interactive_share,
            tenant_reserve=tenant_reserve,
            holds_unserved=holds_unserved,
            may_more=self._to_release.add,
        )
        """What workers can do of each node type, and its load."""
        self._by_type = self.types.by_name
        self._out: dict[str, Ready] = {}
        self._held: dict[str, TypeQueue] = {}
        """The queue in which an attempt waits."""
        self._leaving: deque[tuple[float, str]] = deque()

    # ---- steps ------------------------------------------------------------------------------

    def offer(self, step: Ready) -> bool:
        """Accept a ready attempt; tell whether it goes out now. One that is already out goes out
        again (the stream drops the repeat), one that is held stays held."""
        if step.attempt_id in self._out:
            return True
        kind = self._by_type.get(step.type)
        if kind is None:
            kind = self.types.add(step.type)
        held, window = len(kind.waiting.held), kind.window_for(step)
        if (held or kind.out >= window) and held < MAX_HELD:
            kind.waiting.push(step)
            self._held[step.attempt_id] = kind
            self._to_release.add(step.type)
            return False
        self._hand_out(kind, step)
        return True

    def out(self, attempt_id: str) -> Ready | None:
        """Return an attempt that is out."""
        return self._out.get(attempt_id)

    def finished(self, attempt_id: str) -> Ready | None:
        """Note that an attempt has ended, and return it if it was out or held here."""
        step = self._out.pop(attempt_id, None)
        if step is None:
            return self._drop(attempt_id)
        kind = self._by_type[step.type]
        kind.finished(step)
        if kind.waiting.held:
            self._to_release.add(step.type)
        return step

    @property
    def may_release(self) -> bool:
        """Whether `release` may have something to return."""
        return bool(self._to_release)

    def cancel(self, attempt_id: str, now_ms: float) -> bool:
        """Give up an attempt; tell whether a worker may have it and must be told."""
        held = self._drop(attempt_id)
        if held is not None:
            return held.again
        if attempt_id in self._out:
            self._leaving.append((now_ms + LEAVING_MS, attempt_id))
        return True

    def release(self, now_ms: float) -> list[Ready]:
        """Return the held attempts that go out now, in order."""
        released: list[Ready] = []
        for node_type in sorted(self._to_release):
            kind = self._by_type.get(node_type)
            if kind is None:
                continue  # nothing waited, and no worker runs it any more
            while kind.waiting.held and kind.out < kind.window:
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
            self._free(self._by_type[step.type], step)
        for node_type, kind in self._by_type.items():
            for step in kind.waiting.steps():
                if step.partition == partition:
                    self._drop(step.attempt_id)
            self._to_release.add(node_type)

    # ---- time -------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> None:
        """Measure rates and forget silent workers; to be called a few times a second."""
        self.types.tick(now_ms)
        while self._leaving and self._leaving[0][0] <= now_ms:
            _, attempt_id = self._leaving.popleft()
            step = self._out.pop(attempt_id, None)
            if step is not None:
                self._free(self._by_type[step.type], step)

    # ---- helpers ----------------------------------------------------------------------------

    def _hand_out(self, kind: TypeQueue, step: Ready) -> None:
        self._out[step.attempt_id] = step
        kind.hand_out(step)

    def _drop(self, attempt_id: str) -> Ready | None:
        kind = self._held.pop(attempt_id, None)
        return None if kind is None else kind.waiting.remove(attempt_id)

    def _free(self, kind: TypeQueue, step: Ready) -> None:
        kind.free(step)
        if kind.waiting.held:
            self._to_release.add(step.type)
