"""How many slots of one node type a single tenant may have while steps of other tenants arrive.

A slot is not taken back from a step that has it. So no tenant takes the last ones: however long its
steps take, the next step of another tenant finds a slot. What a tenant's steps finish in LEAD_MS is
added: a tenant with short steps may have all slots, because these become free soon.
"""

from math import inf

from hocket.coordinator.core.scheduling.priority_queue import Ready

TENANT_RESERVE = 0.125
"""The share of the slots that no single tenant takes while steps of others arrive ..."""
LEAST_TO_KEEP = 4
"""... if there are at least this many slots ..."""
SHARED_FOR_MS = 300_000.0
"""... and for this long (at most twice as long) after the last of them."""
LEAD_MS = 100.0
"""What finishes within this time is on its way back: its slots do not count as used."""
RATE_MEMORY = 0.7
"""The weight of the past in a measured rate, per tick."""
LEAST_RATE_PER_MS = 0.001
"""A tenant's rate below this is forgotten."""


class TenantReserve:
    """The slots of one type by tenant. `barred` is the tenant that has as many as it may have,
    which is more than half of them."""

    __slots__ = ("_finished", "_most", "_out", "_rates", "_seen", "_seen_before", "_seen_since_ms",
                 "_share", "barred")  # fmt: skip

    def __init__(self, share: float = TENANT_RESERVE) -> None:
        self.barred: str | None = None
        self._share = share
        self._most = inf
        self._out: dict[str, int] = {}
        self._finished: dict[str, int] = {}  # since the last tick
        self._rates: dict[str, float] = {}
        self._seen: set[str] = set()  # tenants with recent steps; two are enough to know
        self._seen_before: set[str] = set()  # those of the period before
        self._seen_since_ms = -inf

    def offered(self, step: Ready) -> None:
        """Note the tenant of a step that is ready."""
        if len(self._seen) < 2:
            self._seen.add(step.tenant)

    def took(self, step: Ready) -> None:
        """Count a step that got a slot."""
        out = self._out[step.tenant] = self._out.get(step.tenant, 0) + 1
        if out >= self._most and out >= self._most_of(step.tenant):
            self.barred = step.tenant

    def gave_back(self, step: Ready) -> None:
        """Stop counting a step that had a slot."""
        out = self._out[step.tenant] - 1
        if out:
            self._out[step.tenant] = out
        else:
            del self._out[step.tenant]
        if step.tenant == self.barred and out < self._most_of(step.tenant):
            self.barred = None

    def finished(self, step: Ready) -> None:
        """Count a step that ended, for its tenant's rate."""
        self._finished[step.tenant] = self._finished.get(step.tenant, 0) + 1

    def measure(self, since_ms: float, now_ms: float) -> None:
        """Update the rates with what finished since the last tick, and forget arrivals of long ago."""
        if since_ms > 0:
            rates = {
                tenant: RATE_MEMORY * rate
                for tenant, rate in self._rates.items()
                if rate > LEAST_RATE_PER_MS
            }
            for tenant, finished in self._finished.items():
                rates[tenant] = rates.get(tenant, 0.0) + (1 - RATE_MEMORY) * finished / since_ms
            self._rates, self._finished = rates, {}
        if now_ms - self._seen_since_ms >= SHARED_FOR_MS:
            self._seen_since_ms = now_ms
            self._seen, self._seen_before = set(), self._seen

    def set_slots(self, slots: float) -> bool:
        """Compute how many of the slots one tenant may have, and which tenant has reached that;
        tell whether the number grew."""
        before, self._most, self.barred = self._most, inf, None
        is_shared = len(self._seen | self._seen_before) > 1
        if slots >= LEAST_TO_KEEP and self._share and is_shared:
            self._most = slots - max(1, int(slots * self._share))
            for tenant, number in self._out.items():
                if number >= self._most_of(tenant):
                    self.barred = tenant
        return self._most > before

    def _most_of(self, tenant: str) -> float:
        return self._most + int(self._rates.get(tenant, 0.0) * LEAD_MS)
