"""The time that a replica is held, split by what it was used for, and its price.

*starting*: provisioning and loading; *busy*: at least one call in flight; *idle*: loaded without a
call; *provisioned*: a machine without the model. Idle and provisioned time is wasted: it is paid
for but serves nobody.
"""

from dataclasses import dataclass, replace
from decimal import Decimal

from hocket.gateway.core.warming.warm_leases import Level

_MS_PER_HOUR = 3_600_000
_USD = Decimal("0.000000001")


@dataclass(frozen=True, slots=True)
class WarmTime:
    """Milliseconds of each kind."""

    starting_ms: float = 0.0
    busy_ms: float = 0.0
    idle_ms: float = 0.0
    provisioned_ms: float = 0.0

    @property
    def held_ms(self) -> float:
        """All the time that is paid for."""
        return self.starting_ms + self.busy_ms + self.wasted_ms

    @property
    def wasted_ms(self) -> float:
        """The time that was paid for but served nobody."""
        return self.idle_ms + self.provisioned_ms

    def passed(self, level: Level, *, starting: bool, ms: float, busy_ms: float) -> "WarmTime":
        """Return the times after `ms` more in one state, `busy_ms` of it with calls in flight."""
        if starting:
            return replace(self, starting_ms=self.starting_ms + ms)
        if level is Level.READY:
            busy_ms = min(busy_ms, ms)
            return replace(
                self, busy_ms=self.busy_ms + busy_ms, idle_ms=self.idle_ms + ms - busy_ms
            )
        if level is Level.PROVISIONED:
            return replace(self, provisioned_ms=self.provisioned_ms + ms)
        return self


def price(ms: float, usd_per_hour: Decimal) -> Decimal:
    """Return the price of a time, to a billionth of a dollar."""
    return (usd_per_hour * Decimal(round(ms)) / _MS_PER_HOUR).quantize(_USD)
