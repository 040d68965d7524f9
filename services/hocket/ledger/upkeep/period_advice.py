"""What the ledger warns of when it starts: retention periods that do not do what they seem to say."""

from collections.abc import Iterator
from dataclasses import dataclass

from hocket.ledger.upkeep.retention import Periods
from hocket.ledger.upkeep.tenant_periods import TenantPeriods, without_effect

LONGEST_WAIT_DAYS = 90
"""How long a run may wait for a person or an event (`MAX_WAIT_MS`)."""
MONTH_DAYS = 31


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning: the log event, the setting, and what to do."""

    event: str
    field: str
    cure: str


def all_of(periods: Periods, of_tenants: TenantPeriods) -> Iterator[Advice]:
    """Yield the warnings about these retention periods."""
    for period in without_effect(of_tenants, periods):
        yield Advice(
            "tenant_period_without_effect",
            f"HOCKET_KEEP_BY_TENANT: {period}",
            "give fewer days than HOCKET_KEEP_..._DAYS has, or more days there for all",
        )
    yield from _of_months(periods, of_tenants)
    needed = periods.runs + LONGEST_WAIT_DAYS
    if periods.blobs and (not periods.runs or periods.blobs < needed):
        days = f"{needed} days or more, or 0 (forever)" if periods.runs else "0 (forever)"
        yield Advice(
            "blobs_go_before_their_runs",
            "HOCKET_KEEP_BLOBS_DAYS",
            f"set {days}, or leave it out: runs that are kept or wait lose their large values",
        )


def _of_months(periods: Periods, of_tenants: TenantPeriods) -> Iterator[Advice]:
    fields = {"HOCKET_KEEP_USAGE_DAYS": periods.usage} | {
        f"HOCKET_KEEP_BY_TENANT: {tenant}.usage": own.get("usage", 0)
        for tenant, own in of_tenants.items()
    }
    for field, days in fields.items():
        if 0 < days < MONTH_DAYS:
            cure = f"set {MONTH_DAYS} days or more: calls of the current month stay, for budgets"
            yield Advice("usage_stays_for_the_month", field, cure)
