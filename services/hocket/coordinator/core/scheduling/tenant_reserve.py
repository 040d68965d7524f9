"""How many slots of one node type a single tenant may have while steps of other tenants come.

A slot is not taken back from a step that has it. So no tenant takes the last ones: however long its
steps take, the next step of another tenant finds a slot. What a tenant's steps finish in LEAD_MS comes
on top: of short steps it may have all slots, for these become free soon.
"""

from math import inf

from hocket.coordinator.core.scheduling.priority_queue import Ready

TENANT_RESERVE = 0.125
"""The part of the slots that no single tenant takes while steps of others come ..."""
LEAST_TO_KEEP = 4
"""... of no fewer slots than this ..."""
SHARED_FOR_MS = 300_000.0
"""... and for so long after them, twice that at most."""
LEAD_MS = 100.0
"""What finishes within this time is on its way: as far as that, the slots are not in use."""
RATE_MEMORY = 0.7
"""Weight of the past in a measured rate, per tick."""
LEAST_RATE_PER_MS = 0.001
"""The rate of a tenant that finishes less is forgotten."""


class TenantReserve:
    """The slots of one type by tenant. `barred` is the tenant that has as many as it may have, which is
    more than half of them."""

    __slots__ = ("_finished", "_most", "_out", "_rates", "_seen", "_seen_before", "_seen_since_ms",
                 "_share", "barred")  # fmt: skip

    def __init__(self, share: float = TENANT_RESERVE) -> None:
        self.barred: str | None = None
        self._share = share
        self._most = inf
        self._out: dict[str, int] = {}
        self._finished: dict[str, int] = {}  # since the last tick
        self._rates: dict[str, float] = {}
        self._seen: set[str] = set()  # tenants of steps since a while, two are enough to know
        self._seen_before: set[str] = set()  # the same of the while before
        self._seen_since_ms = -inf

    def offered(self, step: Ready) -> None:
        """Note whose step is ready."""
        if len(self._seen) < 2:
            self._seen.add(step.tenant)

    def took(self, step: Ready) -> None:
        """Count a step that has a slot."""
        out = self._out[step.tenant] = self._out.get(step.tenant, 0) + 1
        if out >= self._most and out >= self._most_of(step.tenant):
            self.barred = step.tenant

    def gave_back(self, step: Ready) -> None:
        """Count no longer a step that had one."""
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
        """Take up what finished since the last tick, and whose steps came."""
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
        """Work out how many of the slots one tenant may have, and which tenant has as many; tell whether
        that became more."""
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
