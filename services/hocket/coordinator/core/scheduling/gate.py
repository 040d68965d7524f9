"""The dispatch gate: which ready steps go to the workers now, and which wait here for a free slot.

A step that is in a stream cannot be overtaken any more, so only as many are handed out as keep the
workers busy: per node type a *window* of the slots that workers announced, a spare few, and what
finishes in `LEAD_MS`. A ready step goes out at once while fewer are *out* (handed out and not
finished); beyond it waits, and goes in the order of `priority_queue.py` as steps finish. While
interactive steps come, steps of other classes leave a share of the slots free for them, where slots
become free so seldom that the wait for one counts: a slot is not taken back from a step that has
it. A node type that no worker announced is not gated: its steps wait in the stream, where
autoscalers see them.

States of an attempt here: unknown -> (held ->) out -> unknown. A cancelled one that is held is
forgotten; one that is out counts until its end is heard, `LEAVING_MS` at most. Nothing here is
durable: a new owner offers again whatever its runs' state calls dispatched.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

from hocket.coordinator.core.scheduling.fifo import FifoQueue
from hocket.coordinator.core.scheduling.priority_queue import Ready, Waiting
from hocket.schemas.messages import Priority

Order = Literal["slack", "arrival"]

SPARE_STEPS = 2
"""Steps in the stream beyond the slots, so that a slot that becomes free finds one."""
LEAD_MS = 100.0
"""What finishes within this time is in the stream besides: the way from a result over the coordinator
to the next step must not leave slots idle."""
RATE_MEMORY = 0.7
"""Weight of the past in the measured rate, per tick."""
LEAVING_MS = 5_000.0
SILENT_MS = 7_000.0
"""A worker that has not announced itself for so long is not counted any more."""
LINGER_MS = 10_000.0
"""When the last worker of a type has gone, its steps are held for so long: it may be restarting."""
INTERACTIVE_SHARE = 0.125
"""The part of the slots that is kept free while interactive steps come ..."""
LEAST_TO_KEEP = 4
"""... of no fewer slots than this ..."""
KEPT_FOR_MS = 10_000.0
"""... and for so long after the last of them ..."""
SELDOM_PER_MS = 0.1
"""... where fewer steps finish than this: else one waits for a slot for a few milliseconds only."""
MAX_WORKERS = 10_000
"""Workers that are counted; of more, those that came first."""
MAX_TYPES = 1_000
"""Node types that are told apart because some worker announced them."""
MAX_HELD = 500_000
"""Steps of one type held here; further ones go to the stream, which is on disk."""


@dataclass(frozen=True, slots=True)
class Load:
    """One node type at a moment. `window` is None where the type is not gated."""

    held: int
    out: int
    slots: int
    window: int | None
    rate_per_s: float
    out_ms: float = 0.0
    """The expected work of the steps that are out."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node type can do at a moment: slots (this coordinator's share; 0 where nobody said), and
    the expected work of the steps that are out."""

    slots: float
    out_ms: float


@dataclass(slots=True)
class _Type:
    waiting: Waiting | FifoQueue
    out: int = 0
    out_ms: float = 0.0
    runs_out: dict[str, int] = field(default_factory=dict)
    """Steps that are out, by run."""
    slots: int = 0
    window: float = inf
    others: float = inf
    """The window of steps that are not interactive."""
    interactive: bool = False
    """Whether an interactive step came since the last tick."""
    keeps: bool = False
    """Whether slots are kept free for interactive steps."""
    keeps_until_ms: float = -inf
    gone_at_ms: float | None = None
    """Since when there are no slots any more."""
    finished: int = 0
    """Since the last tick."""
    rate_per_ms: float = 0.0


class Gate:
    """See the module. `weights`: of tenants; 1 for those without. `order`: what waits goes by
    `priority_queue.py`, or as it came (`fifo.py`; nothing is kept free then). `interactive_share`:
    of the slots, to be kept free while interactive steps come."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        order: Order = "slack",
        interactive_share: float = INTERACTIVE_SHARE,
    ) -> None:
        self._weights = dict(weights or {})
        self._order = order
        self._interactive_share = 0.0 if order == "arrival" else interactive_share
        self._types: dict[str, _Type] = {}
        self._out: dict[str, Ready] = {}
        self._held: dict[str, _Type] = {}
        """Where an attempt waits."""
        self._workers: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._slots: dict[str, int] = {}
        """What all of them announced, by type."""
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
            kind = self._types[step.type] = self._new_type()
        if step.priority is Priority.INTERACTIVE:
            kind.interactive = True
            if not kind.keeps:
                self._keep(kind)
        held = len(kind.waiting)
        window = kind.window if step.priority is Priority.INTERACTIVE else kind.others
        if (held or kind.out >= window) and held < MAX_HELD:
            kind.waiting.push(step)
            self._held[step.attempt_id] = kind
            self._to_release.add(step.type)
            return False
        self._goes_out(kind, step)
        return True

    def finished(self, attempt_id: str) -> Ready | None:
        """Note that an attempt has ended, and return it where it was out or held here."""
        step = self._out.pop(attempt_id, None)
        if step is None:
            return self._drop(attempt_id)
        kind = self._types[step.type]
        kind.finished += 1
        self._gave_back(kind, step)
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
                if kind.out >= kind.others and not kind.waiting.has_right_of_way:
                    break
                step = kind.waiting.pop(now_ms, kind.runs_out, self._run_share(kind))
                del self._held[step.attempt_id]
                self._goes_out(kind, step)
                released.append(step)
        self._to_release.clear()
        return released

    def forget(self, partition: int) -> None:
        """Drop every attempt of a partition: it has another owner now."""
        for step in [s for s in self._out.values() if s.partition == partition]:
            del self._out[step.attempt_id]
            self._gave_back(self._types[step.type], step)
        for node_type, kind in self._types.items():
            for step in kind.waiting.steps():
                if step.partition == partition:
                    self._drop(step.attempt_id)
            self._to_release.add(node_type)

    # ---- capacity ---------------------------------------------------------------------------

    def announced(self, worker: str, slots: Mapping[str, int], now_ms: float) -> None:
        """Note what a worker can do; nothing, where it leaves."""
        known = self._workers.get(worker)
        if known is None and len(self._workers) >= MAX_WORKERS:
            return
        if slots:
            self._workers[worker] = (now_ms, dict(slots))
        else:
            self._workers.pop(worker, None)
        before = known[1] if known is not None else {}
        if before != slots:
            self._recount(before, slots, now_ms)

    def hears_again(self, now_ms: float) -> None:
        """Count no silence before this moment: nobody could be heard."""
        self._workers = {w: (now_ms, slots) for w, (_, slots) in self._workers.items()}

    def shares(self, share: float) -> None:
        """Use this part of every capacity (0 to 1): the rest is other coordinators'."""
        if share != self._share:
            self._share = share
            self._set_windows()

    def tick(self, now_ms: float) -> None:
        """Measure rates, forget who is silent; call it a few times a second."""
        since_ms = now_ms - (self._ticked_at_ms if self._ticked_at_ms is not None else now_ms)
        self._ticked_at_ms = now_ms
        silent = [w for w, (at_ms, _) in self._workers.items() if now_ms - at_ms > SILENT_MS]
        for worker in silent:
            _, slots = self._workers.pop(worker)
            self._recount(slots, {}, now_ms)
        for node_type, kind in self._types.items():
            self._take_slots(node_type, kind, now_ms)
        if since_ms > 0:
            for kind in self._types.values():
                measured = kind.finished / since_ms
                kind.finished = 0
                if kind.rate_per_ms or measured:
                    kind.rate_per_ms += (1 - RATE_MEMORY) * (measured - kind.rate_per_ms)
        for kind in self._types.values():
            if kind.interactive:
                kind.interactive, kind.keeps_until_ms = False, now_ms + KEPT_FOR_MS
            kind.keeps = kind.keeps_until_ms > now_ms
        self._set_windows()
        while self._leaving and self._leaving[0][0] <= now_ms:
            _, attempt_id = self._leaving.popleft()
            step = self._out.pop(attempt_id, None)
            if step is not None:
                self._gave_back(self._types[step.type], step)

    def capacity(self, node_type: str, priority: Priority) -> Capacity:
        """Return what a node type can do now for a class, in the partitions of this coordinator."""
        kind = self._types.get(node_type)
        if kind is None or kind.window == inf:
            return Capacity(0.0, 0.0)
        slots = kind.slots * self._share
        return Capacity(
            slots if priority is Priority.INTERACTIVE else min(slots, kind.others), kind.out_ms
        )

    def loads(self) -> dict[str, Load]:
        """Return how every node type is doing."""
        return {
            name: Load(
                held=len(kind.waiting),
                out=kind.out,
                slots=kind.slots,
                window=None if kind.window == inf else ceil(kind.window),
                rate_per_s=kind.rate_per_ms * 1_000,
                out_ms=kind.out_ms,
            )
            for name, kind in self._types.items()
        }

    # ---- helpers ----------------------------------------------------------------------------

    def _new_type(self) -> _Type:
        return _Type(FifoQueue() if self._order == "arrival" else Waiting(self._weights))

    def _goes_out(self, kind: _Type, step: Ready) -> None:
        self._out[step.attempt_id] = step
        kind.out += 1
        kind.out_ms += step.expected_ms
        kind.runs_out[step.run_id] = kind.runs_out.get(step.run_id, 0) + 1

    def _drop(self, attempt_id: str) -> Ready | None:
        kind = self._held.pop(attempt_id, None)
        return None if kind is None else kind.waiting.remove(attempt_id)

    def _gave_back(self, kind: _Type, step: Ready) -> None:
        kind.out -= 1
        kind.out_ms = kind.out_ms - step.expected_ms if kind.out else 0.0
        left = kind.runs_out[step.run_id] - 1
        if left:
            kind.runs_out[step.run_id] = left
        else:
            del kind.runs_out[step.run_id]
        if len(kind.waiting):
            kind.waiting.place_again(step)
            self._to_release.add(step.type)

    def _run_share(self, kind: _Type) -> float:
        """Return how many slots each run may use before it yields to runs that use less."""
        return max(1.0, kind.window / (len(kind.runs_out) + kind.waiting.runs))

    def _recount(self, before: Mapping[str, int], slots: Mapping[str, int], now_ms: float) -> None:
        """Count what changed with one worker, whatever number of others there are."""
        for node_type in {*before, *slots}:
            change = slots.get(node_type, 0) - before.get(node_type, 0)
            total = self._slots[node_type] = self._slots.get(node_type, 0) + change
            if not total:
                del self._slots[node_type]
            elif node_type not in self._types and len(self._types) < MAX_TYPES:
                self._types[node_type] = self._new_type()
            kind = self._types.get(node_type)
            if kind is not None:
                self._take_slots(node_type, kind, now_ms)
                self._set_window(node_type, kind)

    def _take_slots(self, node_type: str, kind: _Type, now_ms: float) -> None:
        found = self._slots.get(node_type, 0)
        if found:
            kind.slots, kind.gone_at_ms = found, None
        elif kind.slots and kind.gone_at_ms is None:
            kind.gone_at_ms = now_ms
        elif kind.gone_at_ms is not None and now_ms - kind.gone_at_ms >= LINGER_MS:
            kind.slots, kind.gone_at_ms = 0, None

    def _set_windows(self) -> None:
        for node_type, kind in self._types.items():
            self._set_window(node_type, kind)

    def _set_window(self, node_type: str, kind: _Type) -> None:
        before = kind.window, kind.others
        if kind.slots:
            own = max(1.0, kind.slots * self._share)
            kind.window = kind.others = own + SPARE_STEPS + kind.rate_per_ms * LEAD_MS
            if kind.keeps:
                self._keep(kind)
        else:
            kind.window = kind.others = inf
        if (kind.window > before[0] or kind.others > before[1]) and len(kind.waiting):
            self._to_release.add(node_type)

    def _keep(self, kind: _Type) -> None:
        """Keep slots free for interactive steps, where there are enough and they are long in use."""
        kind.keeps = True
        own = kind.slots * self._share
        if own >= LEAST_TO_KEEP and self._interactive_share and kind.rate_per_ms < SELDOM_PER_MS:
            kind.others = min(kind.others, own - max(1, int(own * self._interactive_share)))
