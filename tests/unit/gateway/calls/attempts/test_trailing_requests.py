"""Calls whose caller has gone: what is read on, for how long, what is booked that nobody metered."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.backends.protocol import BackendTimedOut, Chunk, Chunks
from hocket.gateway.calls.attempts import upstream
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.request_content import WORST_OUTPUT_TOKENS
from hocket.gateway.core.rates import rules as rates
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import CallReply, CallRequest, Completion
from support.gateway.routing_rig import BOUND_S, Rig, Scripted, backend, hangs, request, says

KIND = ("writer", "report", "draft")
METERED = Completion(text="tidal", input_tokens=1_000_000, output_tokens=500_000)


class Late:
    """A backend that says what it used when the test lets it."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.backend = Scripted(self._behave)

    async def _behave(self, _: CallRequest, chunks: Chunks | None) -> Completion:
        if chunks is not None:
            await chunks(Chunk("ti", output_tokens=1))
        await self.release.wait()
        if chunks is not None:
            await chunks(Chunk("dal", output_tokens=2))
        return METERED


def models(*names: str, hedge: bool = False, **fields: Any) -> dict[str, Any]:
    fields = {"stops_on_disconnect": False, **fields}
    found: dict[str, Any] = {"backends": [backend(name, **fields) for name in names]}
    return {"writer": found | ({"hedge": {"min_ms": 1}} if hedge else {})}


async def stopped(rig: Rig, late: Scripted, **fields: Any) -> tuple[CallReply, Cancellation]:
    """Stop a call that is at its backend, and return its reply."""
    cancellation = Cancellation()
    making = asyncio.create_task(rig.make(cancellation=cancellation, **fields))
    await asyncio.wait_for(late.called.wait(), BOUND_S)
    cancellation.cancel("its caller disconnected")
    return await asyncio.wait_for(making, BOUND_S), cancellation


async def test_a_stopped_call_is_read_to_its_usage_and_its_caller_hears_no_more_of_it() -> None:
    late, heard = Late(), []

    async def take(chunk: Chunk) -> None:
        heard.append(chunk.text)

    rig = Rig(models("a"), a=late.backend)
    let_go: list[str] = []
    cancellation = Cancellation(lambda error: let_go.append(error.code))
    making = asyncio.create_task(rig.make(cancellation=cancellation, chunks=take))
    await asyncio.wait_for(late.backend.called.wait(), BOUND_S)
    cancellation.cancel("its caller disconnected")
    assert let_go == ["call_cancelled"]
    assert rig.records == []
    late.release.set()
    reply = await making
    assert (reply.text, heard, late.backend.stopped) == ("", ["ti"], 0)
    (record,) = rig.records
    assert (record.status, record.cost_usd, record.estimated) == (
        "cancelled",
        Decimal("1.5"),
        False,
    )


async def test_what_does_not_end_in_time_is_booked_as_if_it_were_written_to_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "READ_ON_MS", 20.0)
    slow = hangs()
    rig = Rig(models("a"), a=slow)
    await stopped(rig, slow, max_tokens=2_000_000)
    (record,) = rig.records
    assert (slow.stopped, record.output_tokens, record.estimated) == (1, 2_000_000, True)
    assert record.input_tokens >= 3
    assert record.cost_usd >= 2


async def test_what_is_read_on_ends_at_once_when_the_gateway_stops() -> None:
    slow = hangs()
    rig = Rig(models("a"), a=slow)
    cancellation = Cancellation()
    making = asyncio.create_task(rig.make(cancellation=cancellation))
    await asyncio.wait_for(slow.called.wait(), BOUND_S)
    cancellation.cancel("the gateway stops")
    cancellation.hurry()
    await asyncio.wait_for(making, BOUND_S)
    assert rig.records[0].output_tokens == WORST_OUTPUT_TOKENS


@pytest.mark.parametrize(
    "fields", [{"stops_on_disconnect": True}, {"prices": {}}], ids=["stops", "costs nothing"]
)
async def test_nothing_is_read_on_at_an_engine_that_stops_or_costs_nothing(
    fields: dict[str, Any],
) -> None:
    slow = hangs()
    rig = Rig(models("a", **fields), a=slow)
    await stopped(rig, slow)
    assert (slow.stopped, rig.records[0].estimated) == (1, True)


async def test_a_call_that_timed_out_at_an_engine_that_goes_on_is_booked_to_its_limit() -> None:
    async def times_out(_: CallRequest, __: Chunks | None) -> Completion:
        raise BackendTimedOut(component="a", timeout_ms=5)

    rig = Rig(models("a"), a=Scripted(times_out))
    await rig.make(max_tokens=77)
    (record,) = rig.records
    assert (record.status, record.output_tokens, record.estimated) == ("error", 77, True)


@pytest.mark.parametrize("late_joins", [True, False], ids=["two requests", "one that could be two"])
async def test_a_hedged_call_that_is_stopped_twice_is_booked_all_the_same(late_joins: bool) -> None:
    """A worker stops its calls, and the gateway hears of their attempt as well."""
    first, second = Late(), Late()
    hedge = {"min_ms": 1 if late_joins else 60_000}
    both = {"writer": models("a", "b")["writer"] | {"hedge": hedge}}
    rig = Rig(both, a=first.backend, b=second.backend)
    for _ in range(20):
        rig.calls.scheduler.durations.add(KIND, "a", 5.0)
    cancellation = Cancellation()
    making = asyncio.create_task(rig.make(cancellation=cancellation))
    await asyncio.wait_for(first.backend.called.wait(), BOUND_S)
    if late_joins:
        await asyncio.wait_for(second.backend.called.wait(), BOUND_S)
    for _ in range(3):
        cancellation.cancel("its result has arrived")
        for _ in range(5):
            await asyncio.sleep(0)
    assert rig.records == []
    first.release.set()
    second.release.set()
    reply = await asyncio.wait_for(making, BOUND_S)
    assert reply.error is not None
    assert reply.error.code == "call_cancelled"
    costs = [record.cost_usd for record in rig.records]
    assert costs == [Decimal("1.5")] * (2 if late_joins else 1)


@pytest.mark.parametrize("first_wins", [True, False])
async def test_the_loser_of_a_hedge_keeps_nobody_waiting_and_is_booked_as_metered(
    first_wins: bool,
) -> None:
    late = Late()
    joined = asyncio.Event()

    async def waits_for_the_other(_: CallRequest, __: Chunks | None) -> Completion:
        await joined.wait()
        return METERED

    async def joins(call: CallRequest, chunks: Chunks | None) -> Completion:
        joined.set()
        return await late.backend.behaviour(call, chunks)

    a, b = late.backend, says("tidal")
    if first_wins:
        a, b = Scripted(waits_for_the_other), Scripted(joins)
    rig = Rig(models("a", "b", hedge=True), a=a, b=b)
    for _ in range(20):
        rig.calls.scheduler.durations.add(KIND, "a", 5.0)
    reply = await rig.make(budget_usd="10", max_tokens=1_000_000)
    assert reply.backend == ("a" if first_wins else "b")
    assert len(rig.records) == 1
    late.release.set()
    async with asyncio.timeout(BOUND_S):
        while len(rig.records) < 2:  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0)
    lost = rig.records[1]
    assert (lost.kind, lost.status, lost.cost_usd) == ("speculation", "cancelled", Decimal("1.5"))
    left_usd = rig.calls.spending.left_usd(request(budget_usd="10"))
    assert left_usd == 10 - sum(one.cost_usd for one in rig.records)


async def test_the_tokens_of_a_loser_that_is_read_on_count_in_the_rates() -> None:
    late = Late()
    rig = Rig(models("a", "b", hedge=True), a=late.backend, b=says("tidal"))
    limits = rates.read([{"tenant": "*", "tokens_per_min": 10_000_000}], {})
    rig.calls.replace(replace(rig.table, rates=limits))
    for _ in range(20):
        rig.calls.scheduler.durations.add(KIND, "a", 5.0)
    await rig.make(max_tokens=100)
    (state,) = rig.calls.rates.states()
    assert state.tokens == 2_000
    late.release.set()
    async with asyncio.timeout(BOUND_S):
        while len(rig.records) < 2:  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0)
    (state,) = rig.calls.rates.states()
    assert state.tokens == 1_502_000


@pytest.mark.parametrize("drain_ms", [1_000 * BOUND_S, 0.0])
async def test_the_loser_of_a_hedge_is_read_on_for_as_long_as_a_stopping_gateway_may(
    drain_ms: float,
) -> None:
    late = Late()
    rig = Rig(models("a", "b", hedge=True), a=late.backend, b=says("tidal"))
    for _ in range(20):
        rig.calls.scheduler.durations.add(KIND, "a", 5.0)
    registry = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()))
    reply = await registry.begin(request(max_tokens=1_000_000))
    assert (reply.backend, len(rig.records)) == ("b", 1)
    draining = asyncio.create_task(registry.drain(drain_ms=drain_ms, flush_ms=1_000 * BOUND_S))
    for _ in range(10):
        await asyncio.sleep(0)
    late.release.set()
    await asyncio.wait_for(draining, BOUND_S)
    lost = rig.records[1]
    assert (lost.kind, lost.estimated) == ("speculation", not drain_ms)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_whose_backend_crashes_is_booked_all_the_same(streamed: bool) -> None:
    async def crashes(_: CallRequest, chunks: Chunks | None) -> Completion:
        if chunks is not None:
            await chunks(Chunk("tidal", output_tokens=3))
        raise ZeroDivisionError

    async def take(_: Chunk) -> None:
        return

    rig = Rig({"writer": {"backends": [backend("a")]}}, a=Scripted(crashes))
    reply = await rig.make(max_tokens=7, chunks=take if streamed else None)
    assert reply.error is not None
    assert (reply.error.code, reply.backend) == ("gateway_broken", "a")
    (record,) = rig.records
    assert (record.status, record.estimated) == ("error", True)
    assert record.cost_usd > 0
