"""What a call costs is told in its reply, or charged to its run: one of the two, once."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.call_key import CallKey
from hocket.gateway.core.calls.request_content import PREFILL
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallRequest,
    Completion,
    StepCancelled,
)
from support.gateway.routing_rig import BOUND_S, Rig, Scripted, backend, request, says

METERED = Completion(text="tidal", input_tokens=1_000_000, output_tokens=500_000)
COST_USD = Decimal("1.5")
WHO = Attribution(tenant="ours", run_id="r1", step="look", attempt=1)


class Charged:
    """A registry whose charges of runs are collected."""

    def __init__(self, models: dict[str, Any], **backends: Scripted) -> None:
        self.rig = Rig(models, **backends)
        self.charges: list[tuple[str, str | None, Decimal]] = []
        self.calls = Calls(
            self.rig.table, now_ms=lambda: self.rig.now_ms, books=self.rig, charge=self._charge
        )
        self.registry = CallRegistry(self.calls, GatewayMetrics(CollectorRegistry()))

    async def _charge(self, call_id: str, who: Attribution, cost_usd: Decimal) -> None:
        self.charges.append((call_id, who.step, cost_usd))

    async def ended(self) -> None:
        await self.registry.drain(drain_ms=BOUND_S * 1_000, flush_ms=0)


def slow(**fields: Any) -> tuple[Charged, asyncio.Event]:
    """Return calls to a backend that tells its usage once the event is set."""
    release = asyncio.Event()

    async def behave(_: CallRequest, __: Any) -> Completion:
        await release.wait()
        return METERED

    models = {"writer": {"backends": [backend("a", **fields)]}}
    return Charged(models, a=Scripted(behave)), release


def of_step(**fields: Any) -> CallRequest:
    return request(**{"attribution": WHO, "capability": "cap", **fields})


def stop(made: Charged, how: str, call: CallRequest) -> None:
    if how == "call":
        cancelled = CallCancelled(tenant="ours", call_id=call.call_id, capability="cap")
        made.registry.cancel_from_outside(cancelled)
    elif how == "leave":
        made.registry.leave(call, "its caller is gone")
    else:
        named = {"run_id": "r1", "step": "look", "attempt": 1, "reason": "a race"}
        step = StepCancelled(**named, capability_sha256=hashed("cap"))
        made.registry.cancel_attempt(step)


@pytest.mark.parametrize("how", ["call", "leave", "step"])
async def test_a_stopped_call_that_is_read_on_is_charged_once_its_cost_is_known(how: str) -> None:
    made, release = slow(stops_on_disconnect=False)
    call = of_step()
    reply = made.registry.begin(call)
    await asyncio.wait_for(made.rig.backends["a"].called.wait(), BOUND_S)
    stop(made, how, call)
    told = await asyncio.wait_for(reply, BOUND_S)
    assert told.error is not None
    assert told.cost_usd == 0
    assert made.charges == []
    release.set()
    await made.ended()
    assert made.charges == [("c", "look", COST_USD)]
    again = await made.registry.find(CallKey.of(call))
    assert again is not None
    assert again.result().cost_usd == 0


@pytest.mark.parametrize("how", ["call", "leave", "step"])
async def test_a_stopped_call_whose_backend_stops_is_charged_what_it_is_estimated_at(
    how: str,
) -> None:
    made, _ = slow(stops_on_disconnect=True)
    call = of_step()
    reply = made.registry.begin(call)
    await asyncio.wait_for(made.rig.backends["a"].called.wait(), BOUND_S)
    stop(made, how, call)
    assert (await asyncio.wait_for(reply, BOUND_S)).cost_usd == 0
    await made.ended()
    (record,) = made.rig.records
    assert record.cost_usd > 0
    assert made.charges == [("c", "look", record.cost_usd)]


async def test_what_its_caller_is_told_is_not_charged() -> None:
    made, release = slow()
    release.set()
    reply = await asyncio.wait_for(made.registry.begin(of_step()), BOUND_S)
    await made.ended()
    assert (reply.cost_usd, made.charges) == (COST_USD, [])


async def test_an_answer_after_the_deadline_is_charged() -> None:
    made, release = slow()
    made.rig.now_ms = clock.now_ms()
    reply = made.registry.begin(of_step(deadline_at_ms=made.rig.now_ms + 20))
    await asyncio.sleep(0.03)
    release.set()
    assert (await asyncio.wait_for(reply, BOUND_S)).cost_usd == 0
    await made.ended()
    assert [usd for _, _, usd in made.charges] == [record.cost_usd for record in made.rig.records]


async def test_a_prefill_is_charged() -> None:
    made, release = slow()
    release.set()
    who = Attribution(tenant="ours", run_id="r1", node="look")
    await asyncio.wait_for(made.registry.begin(of_step(task=PREFILL, attribution=who)), BOUND_S)
    await made.ended()
    assert made.charges == [("c", None, COST_USD)]


@pytest.mark.parametrize(
    "fields", [{"call_id": "http:c"}, {"attribution": Attribution(tenant="ours")}]
)
async def test_calls_over_http_and_of_no_run_keep_their_cost(fields: dict[str, Any]) -> None:
    made, _ = slow(stops_on_disconnect=True)
    call = of_step(**fields)
    reply = made.registry.begin(call)
    await asyncio.wait_for(made.rig.backends["a"].called.wait(), BOUND_S)
    made.registry.leave(call, "its caller is gone")
    assert (await asyncio.wait_for(reply, BOUND_S)).cost_usd > 0
    await made.ended()
    assert made.charges == []


async def test_the_loser_of_a_hedge_that_is_read_on_is_charged() -> None:
    release = asyncio.Event()

    async def late(_: CallRequest, __: Any) -> Completion:
        await release.wait()
        return METERED

    backends = [backend(name, stops_on_disconnect=False) for name in ("a", "b")]
    models = {"writer": {"backends": backends, "hedge": {"min_ms": 1}}}
    made = Charged(models, a=Scripted(late), b=says("tidal"))
    for _ in range(20):
        made.calls.scheduler.durations.add(("writer", "report", "draft"), "a", 5.0)
    who = Attribution(tenant="ours", run_id="r1", step="look", pipeline="report", node="draft")
    reply = await asyncio.wait_for(made.registry.begin(of_step(attribution=who)), BOUND_S)
    assert (reply.backend, made.charges) == ("b", [])
    release.set()
    await made.ended()
    assert reply.cost_usd == made.rig.records[0].cost_usd
    lost = made.rig.records[1]
    assert made.charges == [(lost.call_id, "look", COST_USD)]
