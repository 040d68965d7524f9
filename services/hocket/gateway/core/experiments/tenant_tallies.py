"""What was observed of an arm, tenant by tenant, and when that speaks against it for all of them. Pure.

If only one tenant's calls show a fault, that says as much about its calls as about the arm, so the arm
is switched off for that tenant alone: each tenant is compared with its own calls of the control. An arm
is bad for all if the fault also shows without the tenant that has the most bad results, which takes
`min_calls` of others, or for at least half of the tenants, two or more, that used it enough.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from hocket.gateway.core.experiments.rollback_rule import (
    CAUSES,
    ENOUGH_LATENCIES,
    Cause,
    Rate,
    RollbackRule,
    Seen,
    Tally,
)
from hocket.gateway.core.routing.history import Samples

MAX_TENANTS = 64
"""The most tenants remembered per arm; beyond that, the one that used it least recently is forgotten."""
SEVERAL = 2
NOTHING = Seen()

ByTenant = Mapping[str, Seen]


class TenantTallies:
    """What this gateway observed of one arm; `calls` counts those of all tenants."""

    def __init__(self, rule: RollbackRule, *, control: bool) -> None:
        self._rule = rule
        self._control = control
        self._tallies: OrderedDict[str, Tally] = OrderedDict()
        self._latencies = Samples()
        self.calls = 0

    def use(self, rule: RollbackRule, *, control: bool) -> None:
        """Use another rule from now on; the counts stay, but for the oldest that no longer fit."""
        if (rule, control) == (self._rule, self._control):
            return
        self._rule, self._control = rule, control
        for tally in self._tallies.values():
            tally.use(rule, control=control)

    @property
    def seen(self) -> dict[str, Seen]:
        """The rates over the latest calls and runs of each tenant."""
        return {tenant: tally.seen for tenant, tally in self._tallies.items()}

    def seen_of(self, tenant: str) -> Seen:
        """Return the rates over the latest calls and runs of a tenant."""
        tally = self._tallies.get(tenant)
        return NOTHING if tally is None else tally.seen

    def median_ms(self, tenant: str) -> float | None:
        """Return the median latency of a tenant's calls or, if too few of them are known, of all calls;
        None if too few of these are known, too."""
        tally = self._tallies.get(tenant)
        own_ms = None if tally is None else tally.median_ms
        if own_ms is not None:
            return own_ms
        known = len(self._latencies) >= ENOUGH_LATENCIES
        return self._latencies.quantile(0.5) if known else None

    def called(
        self, tenant: str, *, failed: bool, latency_ms: float, slow_ms: float | None
    ) -> None:
        """Count a call of a tenant; it is slow from `slow_ms` on (None: unknown)."""
        self.calls += 1
        self._of(tenant).called(failed=failed, latency_ms=latency_ms, slow_ms=slow_ms)
        if not failed:
            self._latencies.add(latency_ms)

    def ended(self, tenant: str, *, succeeded: bool) -> None:
        """Count the end of a tenant's run that used the arm."""
        self._of(tenant).ended(succeeded=succeeded)

    def _of(self, tenant: str) -> Tally:
        tally = self._tallies.get(tenant)
        if tally is None:
            if len(self._tallies) >= MAX_TENANTS:
                self._tallies.popitem(last=False)
            tally = self._tallies[tenant] = Tally(self._rule, control=self._control)
        self._tallies.move_to_end(tenant)
        return tally


def together(*parts: ByTenant) -> dict[str, Seen]:
    """Return what several gateways saw of each tenant."""
    found: dict[str, Seen] = {}
    for part in parts:
        for tenant, seen in part.items():
            found[tenant] = found[tenant] + seen if tenant in found else seen
    return found


def fault_for_all(rule: RollbackRule, arm: ByTenant, control: ByTenant) -> tuple[str, str] | None:
    """Return what is wrong with an arm for more than one tenant, and a description, or None."""
    for cause in CAUSES:
        rates = {tenant: cause.rate(seen) for tenant, seen in arm.items()}
        usual = {tenant: cause.rate(seen) for tenant, seen in control.items()}
        worst = max(rates, key=lambda tenant: rates[tenant].bad, default="")
        without = _sum(rates, worst), _sum(usual, worst)
        if cause.fault(rule, *without) is not None or _is_for_many(rule, cause, rates, usual):
            found, of_control = _sum(rates), _sum(usual)
            said = f"{found.bad} of {found.of} {cause.words} of {len(rates)} tenants"
            return cause.name, f"{said}, of the control's {of_control.bad} of {of_control.of}"
    return None


def _is_for_many(
    rule: RollbackRule, cause: Cause, rates: Mapping[str, Rate], usual: Mapping[str, Rate]
) -> bool:
    """Tell whether the fault shows for at least half of the tenants, two or more, that used an arm
    enough."""
    enough = [tenant for tenant, rate in rates.items() if rate.of >= rule.min_calls]
    if len(enough) < SEVERAL:
        return False
    faults = (cause.fault(rule, rates[one], usual.get(one, Rate())) for one in enough)
    faulty = sum(fault is not None for fault in faults)
    return faulty >= SEVERAL and 2 * faulty >= len(enough)


def _sum(rates: Mapping[str, Rate], without: str | None = None) -> Rate:
    return _total(rate for tenant, rate in rates.items() if tenant != without)


def _total(rates: Iterable[Rate]) -> Rate:
    bad = of = 0
    for rate in rates:
        bad, of = bad + rate.bad, of + rate.of
    return Rate(bad, of)
