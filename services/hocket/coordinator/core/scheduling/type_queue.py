"""One node type at the gate: what waits, what is out, and the window of steps that may be out.

The window is the slots that workers announced, a few spare ones, and what finishes in LEAD_MS. It
is smaller for non-interactive steps while interactive ones arrive, and zero for a tenant that has
its full part of the slots (`tenant_reserve.py`).
"""

from dataclasses import dataclass
from math import ceil, inf

from hocket.coordinator.core.scheduling.fifo import FifoQueue
from hocket.coordinator.core.scheduling.priority_queue import Ready, Waiting
from hocket.coordinator.core.scheduling.tenant_reserve import (
    LEAD_MS,
    LEAST_TO_KEEP,
    RATE_MEMORY,
    TENANT_RESERVE,
    TenantReserve,
)
from hocket.schemas.messages import Priority

SPARE_STEPS = 2
"""Steps in the stream beyond the slots, so that a slot that becomes free finds one."""
LINGER_MS = 10_000.0
"""How long the steps of a type are still held after its last worker has gone, which may be
restarting."""
INTERACTIVE_SHARE = 0.125
"""The share of the slots that is kept free while interactive steps arrive, if there are at least
LEAST_TO_KEEP ..."""
KEPT_FOR_MS = 10_000.0
"""... and for this long after the last of them ..."""
SELDOM_PER_MS = 0.1
"""... if fewer steps finish than this: otherwise a step waits only a few milliseconds for a slot."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one node type at a moment. `window` is None if the type is not gated."""

    held: int
    out: int
    slots: int
    window: int | None
    rate_per_s: float
    out_ms: float = 0.0
    """The expected work of the steps that are out (ms)."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node type can do at a moment: slots (this coordinator's share; 0 if none were
    announced), and the expected work of the steps that are out."""

    slots: float
    out_ms: float


class TypeQueue:
    """The steps of one type; `interactive_share` of its slots is kept free if that is worthwhile,
    and `tenant_reserve` is kept from each tenant for the others. With `holds_unserved`, nothing
    goes out while no worker runs the type."""

    __slots__ = (
        "_finished",
        "_gone_at_ms",
        "_interactive",
        "_interactive_share",
        "_keeps",
        "_keeps_until_ms",
        "_out_ms",
        "_rate_per_ms",
        "_share",
        "_slots",
        "_ungated",
        "others",
        "out",
        "runs_out",
        "tenants",
        "waiting",
        "window",
    )

    def __init__(
        self,
        waiting: Waiting | FifoQueue,
        interactive_share: float,
        *,
        holds_unserved: bool = False,
        tenant_reserve: float = TENANT_RESERVE,
    ) -> None:
        self.waiting = waiting
        self._ungated = 0.0 if holds_unserved else inf
        self.out = 0
        self.runs_out: dict[str, int] = {}
        """Steps that are out, by run."""
        self.window = self._ungated
        self.others = self._ungated
        """The window for steps that are not interactive."""
        self.tenants = TenantReserve(tenant_reserve)
        self._interactive_share = interactive_share
        self._interactive = False  # whether an interactive step came since the last tick
        self._keeps = False
        self._keeps_until_ms = -inf
        self._share = 1.0
        self._slots = 0
        self._gone_at_ms: float | None = None  # since when there have been no slots
        self._out_ms = 0.0
        self._finished = 0  # since the last tick
        self._rate_per_ms = 0.0

    def window_for(self, step: Ready) -> float:
        """Note that a step is ready, and return the window that applies to it: how many steps may
        be out for it to go out now."""
        self.tenants.offered(step)
        if step.tenant == self.tenants.barred:
            return 0.0
        if step.priority is not Priority.INTERACTIVE:
            return self.others
        self._interactive = True
        if not self._keeps:
            self._keep()
        return self.window

    def hand_out(self, step: Ready) -> None:
        """Count a step that goes to the workers."""
        self.out += 1
        self.tenants.took(step)
        self._out_ms += step.expected_ms
        self.runs_out[step.run_id] = self.runs_out.get(step.run_id, 0) + 1

    def finished(self, step: Ready) -> None:
        """Stop counting a step that was out, and count it for the rates."""
        self._finished += 1
        self.tenants.finished(step)
        self.free(step)

    def free(self, step: Ready) -> None:
        """Stop counting a step that was out."""
        self.out -= 1
        self.tenants.gave_back(step)
        self._out_ms = self._out_ms - step.expected_ms if self.out else 0.0
        left = self.runs_out[step.run_id] - 1
        if left:
            self.runs_out[step.run_id] = left
        else:
            del self.runs_out[step.run_id]
        if self.waiting.held:
            self.waiting.place_again(step)

    def run_share(self) -> float:
        """Return how many slots each run may use before it yields to runs that use less."""
        return max(1.0, self.window / (len(self.runs_out) + self.waiting.runs))

    def take_slots(self, found: int, now_ms: float) -> None:
        """Set the slots that workers announce; those of a type whose workers have gone linger for
        LINGER_MS."""
        if found:
            self._slots, self._gone_at_ms = found, None
        elif self._slots and self._gone_at_ms is None:
            self._gone_at_ms = now_ms
        elif self._gone_at_ms is not None and now_ms - self._gone_at_ms >= LINGER_MS:
            self._slots, self._gone_at_ms = 0, None

    def measure(self, since_ms: float, now_ms: float) -> None:
        """Update the rates with what finished since the last tick, and note whether interactive
        steps arrived."""
        if since_ms > 0:
            measured = self._finished / since_ms
            self._finished = 0
            if self._rate_per_ms or measured:
                self._rate_per_ms += (1 - RATE_MEMORY) * (measured - self._rate_per_ms)
        if self._interactive:
            self._interactive, self._keeps_until_ms = False, now_ms + KEPT_FOR_MS
        self._keeps = self._keeps_until_ms > now_ms
        self.tenants.measure(since_ms, now_ms)

    def set_window(self, share: float) -> bool:
        """Compute the windows for a share of the slots; tell whether one of them grew."""
        self._share = share
        before = self.window, self.others
        if self._slots:
            own = max(1.0, self._slots * share)
            self.window = self.others = own + SPARE_STEPS + self._rate_per_ms * LEAD_MS
            if self._keeps:
                self._keep()
        else:
            self.window = self.others = self._ungated
        may_more = self.tenants.set_slots(self._slots * share)
        return may_more or self.window > before[0] or self.others > before[1]

    def capacity(self, priority: Priority, share: float) -> Capacity:
        """Return what the type can do for a class, with a share of its slots."""
        if not self._slots:
            return Capacity(0.0, 0.0)
        slots = self._slots * share
        own = slots if priority is Priority.INTERACTIVE else min(slots, self.others)
        return Capacity(own, self._out_ms)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or is out, and no worker runs the type."""
        return not (self._slots or self.out or len(self.waiting))

    def load(self) -> Load:
        """Return the type's present load."""
        return Load(
            held=len(self.waiting),
            out=self.out,
            slots=self._slots,
            window=None if self.window == inf else ceil(self.window),
            rate_per_s=self._rate_per_ms * 1_000,
            out_ms=self._out_ms,
        )

    def _keep(self) -> None:
        """Keep slots free for interactive steps, if there are enough slots and they stay in use for
        long."""
        self._keeps = True
        own = self._slots * self._share
        seldom = self._rate_per_ms < SELDOM_PER_MS
        if own >= LEAST_TO_KEEP and self._interactive_share and seldom:
            self.others = min(self.others, own - max(1, int(own * self._interactive_share)))
