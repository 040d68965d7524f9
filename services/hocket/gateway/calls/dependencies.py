"""The parts that making a call needs: routes, scheduler, budgets, rates and the usage recorder."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal

from hocket.gateway.accounting.spending import Spending
from hocket.gateway.calls.call import UsageRecorder
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.config.routes import Routes
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.rates.model_rates import ModelRates
from hocket.schemas.messages import Attribution

ChargeUntold = Callable[[str, Attribution, Decimal], Awaitable[None]]
"""Charges the run of a call (its id, its attribution) for a cost that no reply tells."""


def model_rates(
    routes: Routes, now_ms: Callable[[], float], gateways: Callable[[], int]
) -> ModelRates:
    """Return the limiter that holds calls to the rates of `routes`,
    shared among `gateways()` gateways."""
    return ModelRates(routes.rates, now_ms, gateways)


@dataclass(frozen=True, slots=True)
class CallDependencies:
    """The parts of a gateway that every call uses.

    `routes` returns the routing table currently in force; `gateway` is the name under which calls
    are announced; `charge` is None if runs are not charged here.
    """

    routes: Callable[[], Routes]
    scheduler: CallScheduler
    spending: Spending
    recorder: UsageRecorder
    now_ms: Callable[[], float]
    gateway: str = ""
    metrics: GatewayMetrics | None = None
    rates: ModelRates | None = None
    charge: ChargeUntold | None = None
