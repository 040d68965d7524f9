"""One node type at the gate: what waits, what is out, and the window of steps that may be out.

The window is the slots that workers announced, a spare few, and what finishes in LEAD_MS. Steps that
are not interactive have a smaller one while interactive steps come, and one tenant's steps have while
other tenants' come: a slot is not taken back from a step that has it, however long it takes.
"""

from dataclasses import dataclass
from math import ceil, inf

from hocket.coordinator.core.scheduling.fifo import FifoQueue
from hocket.coordinator.core.scheduling.priority_queue import Ready, Waiting
from hocket.schemas.messages import Priority

SPARE_STEPS = 2
"""Steps in the stream beyond the slots, so that a slot that becomes free finds one."""
LEAD_MS = 100.0
"""What finishes within this time is in the stream besides: the way from a result over the coordinator
to the next step must not leave slots idle."""
RATE_MEMORY = 0.7
"""Weight of the past in the measured rate, per tick."""
LINGER_MS = 10_000.0
"""When the last worker of a type has gone, its steps are held for so long: it may be restarting."""
INTERACTIVE_SHARE = 0.125
"""The part of the slots that is kept free while interactive steps come ..."""
LEAST_TO_KEEP = 4
"""... of no fewer slots than this ..."""
TENANT_RESERVE = 0.125
"""The part of the slots that no single tenant takes while steps of others come ..."""
SHARED_FOR_MS = 300_000.0
"""... and for so long after them, twice that at most. What the tenant's steps finish in LEAD_MS comes
on top: of short steps it may have all slots, for these become free soon."""
LEAST_RATE_PER_MS = 0.001
"""The rate of a tenant that finishes less is forgotten."""
KEPT_FOR_MS = 10_000.0
"""... and for so long after the last of them ..."""
SELDOM_PER_MS = 0.1
"""... where fewer steps finish than this: otherwise one waits for a slot for a few milliseconds only."""


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


class TypeQueue:
    """The steps of one type; `interactive_share` of its slots is kept free where that is worth it, and
    `tenant_reserve` from each tenant for the others. `holds_unserved`: while no worker runs the type,
    nothing goes out."""

    __slots__ = (
        "_finished",
        "_gone_at_ms",
        "_interactive",
        "_interactive_share",
        "_keeps",
        "_keeps_until_ms",
        "_out_ms",
        "_rate_per_ms",
        "_seen",
        "_seen_before",
        "_seen_since_ms",
        "_share",
        "_slots",
        "_tenant_most",
        "_tenant_rates",
        "_tenant_reserve",
        "_tenants_finished",
        "_tenants_out",
        "_ungated",
        "barred",
        "others",
        "out",
        "runs_out",
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
        """The window of steps that are not interactive."""
        self.barred: str | None = None
        """The tenant that has as many slots as it may have: more than half of them."""
        self._tenant_reserve = tenant_reserve
        self._tenant_most = inf
        self._tenants_out: dict[str, int] = {}
        self._tenants_finished: dict[str, int] = {}  # since the last tick
        self._tenant_rates: dict[str, float] = {}
        self._seen: set[str] = set()  # tenants of steps since a while, two are enough to know
        self._seen_before: set[str] = set()  # the same of the while before
        self._seen_since_ms = -inf
        self._interactive_share = interactive_share
        self._interactive = False  # whether an interactive step came since the last tick
        self._keeps = False
        self._keeps_until_ms = -inf
        self._share = 1.0
        self._slots = 0
        self._gone_at_ms: float | None = None  # since when there are no slots any more
        self._out_ms = 0.0
        self._finished = 0  # since the last tick
        self._rate_per_ms = 0.0

    def window_for(self, step: Ready) -> float:
        """Note that a step is ready, and return how many may be out for it to go out now."""
        if len(self._seen) < 2:
            self._seen.add(step.tenant)
        if step.tenant == self.barred:
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
        self._out_ms += step.expected_ms
        self.runs_out[step.run_id] = self.runs_out.get(step.run_id, 0) + 1
        out = self._tenants_out[step.tenant] = self._tenants_out.get(step.tenant, 0) + 1
        if out >= self._tenant_most and out >= self._most_of(step.tenant):
            self.barred = step.tenant

    def finished(self, step: Ready) -> None:
        """Count a step that ended, for the rates."""
        self._finished += 1
        self._tenants_finished[step.tenant] = self._tenants_finished.get(step.tenant, 0) + 1

    def free(self, step: Ready) -> None:
        """Count no longer a step that was out."""
        self.out -= 1
        self._out_ms = self._out_ms - step.expected_ms if self.out else 0.0
        left = self.runs_out[step.run_id] - 1
        if left:
            self.runs_out[step.run_id] = left
        else:
            del self.runs_out[step.run_id]
        out = self._tenants_out[step.tenant] - 1
        if out:
            self._tenants_out[step.tenant] = out
        else:
            del self._tenants_out[step.tenant]
        if step.tenant == self.barred and out < self._most_of(step.tenant):
            self.barred = None
        if len(self.waiting):
            self.waiting.place_again(step)

    def run_share(self) -> float:
        """Return how many slots each run may use before it yields to runs that use less."""
        return max(1.0, self.window / (len(self.runs_out) + self.waiting.runs))

    def take_slots(self, found: int, now_ms: float) -> None:
        """Count the slots that workers announce; those of a type whose workers have gone linger."""
        if found:
            self._slots, self._gone_at_ms = found, None
        elif self._slots and self._gone_at_ms is None:
            self._gone_at_ms = now_ms
        elif self._gone_at_ms is not None and now_ms - self._gone_at_ms >= LINGER_MS:
            self._slots, self._gone_at_ms = 0, None

    def measure(self, since_ms: float, now_ms: float) -> None:
        """Take up what finished since the last tick, and whether interactive steps came."""
        if since_ms > 0:
            measured = self._finished / since_ms
            self._finished = 0
            if self._rate_per_ms or measured:
                self._rate_per_ms += (1 - RATE_MEMORY) * (measured - self._rate_per_ms)
            self._measure_tenants(since_ms)
        if self._interactive:
            self._interactive, self._keeps_until_ms = False, now_ms + KEPT_FOR_MS
        self._keeps = self._keeps_until_ms > now_ms
        if now_ms - self._seen_since_ms >= SHARED_FOR_MS:
            self._seen_since_ms = now_ms
            self._seen, self._seen_before = set(), self._seen

    def _measure_tenants(self, since_ms: float) -> None:
        rates = {
            tenant: RATE_MEMORY * rate
            for tenant, rate in self._tenant_rates.items()
            if rate > LEAST_RATE_PER_MS
        }
        for tenant, finished in self._tenants_finished.items():
            rates[tenant] = rates.get(tenant, 0.0) + (1 - RATE_MEMORY) * finished / since_ms
        self._tenant_rates, self._tenants_finished = rates, {}

    def _most_of(self, tenant: str) -> float:
        """Return how many slots a tenant may have."""
        return self._tenant_most + int(self._tenant_rates.get(tenant, 0.0) * LEAD_MS)

    def set_window(self, share: float) -> bool:
        """Work out the windows for a part of the slots; tell whether one of them grew."""
        self._share = share
        before = self.window, self.others, self._tenant_most
        if self._slots:
            own = max(1.0, self._slots * share)
            self.window = self.others = own + SPARE_STEPS + self._rate_per_ms * LEAD_MS
            if self._keeps:
                self._keep()
        else:
            self.window = self.others = self._ungated
        self._bar()
        grew = self.window > before[0] or self.others > before[1]
        return grew or self._tenant_most > before[2]

    def _bar(self) -> None:
        """Work out how many slots one tenant may have, and which tenant has as many."""
        own = self._slots * self._share
        is_shared = len(self._seen | self._seen_before) > 1
        self._tenant_most, self.barred = inf, None
        if own >= LEAST_TO_KEEP and self._tenant_reserve and is_shared:
            self._tenant_most = own - max(1, int(own * self._tenant_reserve))
            for name, number in self._tenants_out.items():
                if number >= self._most_of(name):
                    self.barred = name

    def capacity(self, priority: Priority, share: float) -> Capacity:
        """Return what the type can do for a class with a part of its slots."""
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
        """Return how the type is doing."""
        return Load(
            held=len(self.waiting),
            out=self.out,
            slots=self._slots,
            window=None if self.window == inf else ceil(self.window),
            rate_per_s=self._rate_per_ms * 1_000,
            out_ms=self._out_ms,
        )

    def _keep(self) -> None:
        """Keep slots free for interactive steps, where there are enough and they are long in use."""
        self._keeps = True
        own = self._slots * self._share
        seldom = self._rate_per_ms < SELDOM_PER_MS
        if own >= LEAST_TO_KEEP and self._interactive_share and seldom:
            self.others = min(self.others, own - max(1, int(own * self._interactive_share)))
