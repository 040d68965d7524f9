"""How many refused calls are recorded."""

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.calls import recorded_refusals
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.calls.recorded_refusals import MAX_OF_ALL, MAX_OF_TENANT, RecordedRefusals
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import Attribution
from support.gateway.routing_rig import Rig, backend, request, says

MODELS = {"writer": {"backends": [backend("a")]}}


def test_a_tenant_has_so_many_within_a_minute_and_takes_nothing_from_others() -> None:
    recorded = RecordedRefusals()
    assert sum(recorded.takes("acme", at) for at in range(2 * MAX_OF_TENANT)) == MAX_OF_TENANT
    assert recorded.takes("globex", 59_999)
    assert not recorded.takes("acme", 59_999)
    assert recorded.takes("acme", 60_000)


def test_tenants_that_somebody_invents_have_so_many_together() -> None:
    recorded = RecordedRefusals()
    taken = [recorded.takes(f"t{number}", 0.0) for number in range(2 * MAX_OF_ALL)]
    assert sum(taken) == MAX_OF_ALL
    assert recorded.takes("acme", 60_000)


async def test_what_is_not_recorded_is_answered_and_counted_and_calls_are_booked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_refusals, "MAX_OF_TENANT", 3)
    rig, registry = Rig(MODELS, a=says("tidal")), CollectorRegistry()
    calls = Calls(
        rig.calls.routes, now_ms=lambda: rig.now_ms, books=rig, metrics=GatewayMetrics(registry)
    )
    who = Attribution(tenant="acme")
    for number in range(5):
        unknown = request(call_id=f"c{number}", model="nope", attribution=who)
        reply = await calls.make(unknown, Cancellation())
        assert reply.error is not None
        assert reply.error.code == "model_unknown"
    assert [one.call_id for one in rig.refused] == ["c0", "c1", "c2"]
    assert registry.get_sample_value("hocket_gateway_refusals_unrecorded_total") == 2
    assert (await calls.make(request(attribution=who), Cancellation())).error is None
    assert len(rig.records) == 1
