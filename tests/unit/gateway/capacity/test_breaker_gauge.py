"""The gauge of open breakers reports those that there are."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.capacity.replica_health import ReplicaHealth
from hocket.gateway.core.config.table import BackendSpec, ModelSpec, RoutingTable
from hocket.gateway.core.routing.breaker import BreakerState
from hocket.gateway.core.routing.history import CallDurations
from hocket.gateway.metrics import GatewayMetrics

BACKENDS = (BackendSpec("a", "openai", "m"), BackendSpec("b", "openai", "m"))
STRICTER = replace(BACKENDS[0], breaker=replace(BACKENDS[0].breaker, failures_in_a_row=2))


def table(*backends: BackendSpec) -> RoutingTable:
    return RoutingTable({"writer": ModelSpec(backends)})


@pytest.mark.parametrize("left", [(BACKENDS[1],), (STRICTER, BACKENDS[1])])
def test_a_breaker_that_is_gone_after_a_reload_is_not_reported_as_open(
    left: tuple[BackendSpec, ...],
) -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    health = ReplicaHealth(
        table(*BACKENDS), CallDurations(), lambda: 0.0, metrics, changed=lambda: None
    )
    for key in health.breakers:
        metrics.breaker(key, BreakerState.OPEN, opened=True)

    health.replace(table(*left))

    told = {
        key: registry.get_sample_value("hocket_gateway_breaker_open", {"backend": key})
        for key in (BACKENDS[0].key, BACKENDS[1].key)
    }
    assert told == {BACKENDS[0].key: None, BACKENDS[1].key: 1.0}
