"""What making a call needs: where it can go, what it may cost, and where it is booked."""

from collections.abc import Callable
from dataclasses import dataclass

from hocket.gateway.accounting.spending import Spending
from hocket.gateway.calls.call import UsageRecorder
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.config.routes import Routes
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.rates.model_rates import ModelRates


def model_rates(
    routes: Routes, now_ms: Callable[[], float], gateways: Callable[[], int]
) -> ModelRates:
    """Return what holds calls to the rates of some routes, which so many gateways share."""
    return ModelRates(routes.rates, now_ms, gateways)


@dataclass(frozen=True, slots=True)
class CallDependencies:
    """The parts of a gateway that every call uses; `routes` gives those of the moment, `gateway` is the
    name under which calls are announced."""

    routes: Callable[[], Routes]
    scheduler: CallScheduler
    spending: Spending
    recorder: UsageRecorder
    now_ms: Callable[[], float]
    gateway: str = ""
    metrics: GatewayMetrics | None = None
    rates: ModelRates | None = None
