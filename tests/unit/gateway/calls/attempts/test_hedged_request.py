"""Hedging: when a second replica is asked, who wins, what the loser is booked as, and how often."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.backends.protocol import BackendBroken, BackendTimedOut, Chunk, Chunks
from hocket.gateway.calls.attempts import upstream
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.calls.hedging import HedgeRule, HedgeTokens
from hocket.gateway.core.warming.warm_leases import ColdStart
from hocket.schemas.messages import CallOpened, CallRequest, Completion
from support.gateway.routing_rig import NOW_MS, Rig, Said, Scripted, backend, hangs, request, says

KIND = ("writer", "report", "draft")


def models(**hedge: Any) -> dict[str, Any]:
    return {
        "writer": {"hedge": {"min_ms": 1, **hedge}, "backends": [backend("a"), backend("b")]},
        "other": {"backends": [backend("c")]},
    }


def known(rig: Rig, samples: int = 20) -> Rig:
    """Let calls of the kind be known to take 5 ms."""
    for _ in range(samples):
        rig.calls.scheduler.durations.add(KIND, "a", 5.0)
    return rig


async def test_a_call_that_takes_too_long_is_answered_by_another_replica() -> None:
    slow = hangs()
    rig = known(Rig(models(), a=slow, b=says("tidal")))
    reply = await rig.make()
    assert (reply.text, reply.backend, slow.stopped) == ("tidal", "b", 1)
    assert sorted(rig.booked()) == [
        ("c", "a", "cancelled", "speculation"),
        ("c:h", "b", "ok", "call"),
    ]
    assert rig.opened == ["c", "c:h"]
    assert len(rig.calls.scheduler.queue) == 0


async def test_the_first_request_may_still_win() -> None:
    late = asyncio.Event()

    async def answers_late(_: CallRequest, __: Chunks | None) -> Completion:
        await late.wait()
        return Completion(text="tidal")

    async def hangs_then(_: CallRequest, __: Chunks | None) -> Completion:
        late.set()
        await asyncio.Event().wait()
        raise AssertionError

    rig = known(Rig(models(), a=Scripted(answers_late), b=Scripted(hangs_then)))
    reply = await rig.make()
    assert (reply.text, reply.backend) == ("tidal", "a")
    assert sorted(rig.booked()) == [
        ("c", "a", "ok", "call"),
        ("c:h", "b", "cancelled", "speculation"),
    ]


async def test_if_the_second_request_fails_the_first_one_is_waited_for() -> None:
    late = asyncio.Event()

    async def answers_late(_: CallRequest, __: Chunks | None) -> Completion:
        await late.wait()
        return Completion(text="tidal")

    async def fails(_: CallRequest, __: Chunks | None) -> Completion:
        late.set()
        raise BackendBroken(component="b", status=503, reason="no luck")

    rig = known(Rig(models(), a=Scripted(answers_late), b=Scripted(fails)))
    assert (await rig.make()).text == "tidal"
    assert sorted(rig.booked()) == [("c", "a", "ok", "call"), ("c:h", "b", "error", "call")]


async def test_a_stream_has_one_speaker() -> None:
    heard: list[str] = []

    async def take(chunk: Chunk) -> None:
        heard.append(chunk.text)

    rig = known(Rig(models(), a=hangs(), b=says("tidal")))
    reply = await rig.make(chunks=take)
    assert (heard, reply.text) == (["tidal"], "tidal")


@pytest.mark.parametrize("speaker_counts", [True, False], ids=["breaks off", "ends"])
async def test_a_loser_that_is_read_on_is_never_the_answer_and_is_booked(
    speaker_counts: bool,
) -> None:
    over = asyncio.Event()

    async def speaks(_: CallRequest, chunks: Chunks | None) -> Completion:
        assert chunks is not None
        await asyncio.sleep(0.05)
        await chunks(Chunk("tid", output_tokens=1))
        await asyncio.sleep(0.05)
        if speaker_counts:
            raise BackendBroken(component="a", status="stream", reason="it ended too early")
        return Completion(text="tidal", input_tokens=1, output_tokens=1)

    async def is_read_on(_: CallRequest, __: Chunks | None) -> Completion:
        await over.wait()
        return Completion(text="late", input_tokens=1_000_000, output_tokens=500_000)

    backends = [backend(name, stops_on_disconnect=False) for name in ("a", "b")]
    section = {"writer": {"hedge": {"min_ms": 1}, "backends": backends}}
    rig = known(Rig(section, a=Scripted(speaks), b=Scripted(is_read_on)))
    heard = []

    async def take(chunk: Chunk) -> None:
        heard.append(chunk.text)

    reply = await rig.make(chunks=take)
    assert heard == ["tid"]
    assert (reply.error is not None, reply.text) == (
        speaker_counts,
        "" if speaker_counts else "tidal",
    )
    over.set()
    await rig.calls.settle_trailing(1_000, 1_000)
    booked = {one.call_id: one for one in rig.records}
    assert set(booked) == {"c", "c:h"}
    assert booked["c:h"].cost_usd == Decimal("1.5")


async def test_a_backend_that_a_reload_removes_meanwhile_costs_no_answer_of_the_other() -> None:
    async def answers_late(_: CallRequest, __: Chunks | None) -> Completion:
        await asyncio.sleep(0.05)
        return Completion(text="tidal", input_tokens=1, output_tokens=1)

    rig = known(Rig(models(), a=Scripted(answers_late), b=hangs()))
    announce = rig.open

    async def open_after_a_reload(opened: CallOpened) -> Said:
        if opened.call_id == "c:h":
            kept = {key: one for key, one in rig.table.served.items() if key != "b"}
            rig.calls._routes = replace(rig.calls.routes, served=kept)
        return await announce(opened)

    rig.open = open_after_a_reload  # type: ignore[method-assign]
    reply = await rig.make()
    assert (reply.text, reply.error) == ("tidal", None)
    assert ("c", "a", "ok", "call") in rig.booked()


async def test_a_stream_that_has_begun_is_not_hedged() -> None:
    spoke = asyncio.Event()

    async def speaks_slowly(_: CallRequest, chunks: Chunks | None) -> Completion:
        assert chunks is not None
        await chunks(Chunk("ti", output_tokens=1))
        await spoke.wait()
        return Completion(text="tidal")

    async def take(chunk: Chunk) -> None:
        asyncio.get_running_loop().call_later(0.05, spoke.set)

    rig = known(Rig(models(), a=Scripted(speaks_slowly), b=says("no")))
    assert (await rig.make(chunks=take)).text == "tidal"
    assert rig.backends["b"].requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": ({"type": "function", "function": {"name": "pay"}},)},
        {
            "openai": {
                "path": "chat/completions",
                "body": {"messages": [], "tools": [{"type": "function"}]},
            }
        },
    ],
    ids=["tools", "openai tools"],
)
async def test_a_call_with_tools_is_made_once_unless_that_is_allowed(
    fields: dict[str, Any],
) -> None:
    wanted = request(**fields)
    assert not HedgeRule().suits(wanted)
    assert HedgeRule(tools=True).suits(wanted)


async def test_without_history_without_the_rule_and_without_a_free_replica_nothing_is_hedged() -> (
    None
):
    late = asyncio.Event()

    async def answers_late(_: CallRequest, __: Chunks | None) -> Completion:
        asyncio.get_running_loop().call_later(0.03, late.set)
        await late.wait()
        return Completion(text="tidal")

    plain = {"writer": {"backends": [backend("a"), backend("b")]}}
    lone = {"writer": {"hedge": True, "backends": [backend("a")]}}
    for rig in (
        Rig(models(), a=Scripted(answers_late), b=says("no")),
        known(Rig(plain, a=Scripted(answers_late), b=says("no"))),
        known(Rig(lone, a=Scripted(answers_late))),
    ):
        late.clear()
        assert (await rig.make()).text == "tidal"
        assert len(rig.records) == 1


async def test_whoever_stops_the_call_stops_both_and_both_are_booked() -> None:
    cancellation = Cancellation()
    first, second = hangs(), hangs()
    rig = known(Rig(models(), a=first, b=second))
    making = asyncio.create_task(rig.make(cancellation=cancellation))
    await asyncio.wait_for(second.called.wait(), 20)
    cancellation.cancel("its caller disconnected")
    reply = await making
    assert reply.error is not None
    assert reply.error.code == "call_cancelled"
    assert (first.stopped, second.stopped) == (1, 1)
    assert sorted(rig.booked()) == [
        ("c", "a", "cancelled", "call"),
        ("c:h", "b", "cancelled", "call"),
    ]


async def test_no_cold_replica_is_started_for_a_second_request() -> None:
    late = asyncio.Event()
    missed: list[str] = []

    async def answers_late(_: CallRequest, __: Chunks | None) -> Completion:
        asyncio.get_running_loop().call_later(0.03, late.set)
        await late.wait()
        return Completion(text="tidal")

    rig = known(Rig(models(), a=Scripted(answers_late), b=says("no")))
    rig.calls.scheduler.use_cold({"b": ColdStart(1_000.0)})
    rig.calls.scheduler.observe_cold(missed.extend)
    assert (await rig.make()).text == "tidal"
    assert missed == []


async def test_the_deadline_holds_for_a_second_request_that_is_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def times_out(_: CallRequest, __: Chunks | None) -> Completion:
        await asyncio.sleep(0.1)
        raise BackendTimedOut(component="a", timeout_ms=100)

    monkeypatch.setattr(upstream, "READ_ON_MS", 10.0)
    backends = [backend("a"), backend("b", stops_on_disconnect=False)]
    section = {"writer": {"hedge": {"min_ms": 1}, "backends": backends}}
    rig = known(Rig(section, a=Scripted(times_out), b=hangs()))
    async with asyncio.timeout(10):
        reply = await rig.make(deadline_at_ms=NOW_MS + 100)
    assert reply.error is not None
    assert reply.error.code == "backend_timed_out"
    assert rig.backends["b"].stopped == 1


async def test_a_request_that_fails_does_not_wait_for_a_hedge_that_waits_for_its_money() -> None:
    async def fails_late(_: CallRequest, __: Chunks | None) -> Completion:
        await asyncio.sleep(0.05)
        raise BackendBroken(component="a", status=503, reason="no luck")

    rig = known(Rig(models(), a=Scripted(fails_late), b=says("tidal")))
    async with asyncio.timeout(10):  # the deadline is a minute away
        reply = await rig.make(max_tokens=1_000, budget_usd="0.0015")
    assert (reply.text, reply.backend) == ("tidal", "b")
    assert rig.booked() == [("c", "a", "error", "call"), ("c:r1", "b", "ok", "call")]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_call_stopped_while_it_is_announced_or_right_after_asks_nobody(
    at_once: bool,
) -> None:
    cancellation = Cancellation()

    class Stopping(Rig):
        async def open(self, opened: CallOpened) -> Said:
            stop = partial(cancellation.cancel, "its caller disconnected")
            if at_once:
                stop()
            else:
                asyncio.get_running_loop().call_soon(stop)
            return await super().open(opened)

    rig = known(Stopping(models(), a=says("no"), b=says("no")))
    reply = await rig.make(cancellation=cancellation)
    assert reply.error is not None
    assert reply.error.code == "call_cancelled"
    assert rig.backends["a"].requests == rig.backends["b"].requests == []
    assert rig.booked() == [("c", "a", "cancelled", "call")]
    assert rig.calls.scheduler.demand("a") == (0, 0), "its place is free again"


@pytest.mark.parametrize("hedge", [False, True])
async def test_requests_that_run_out_of_time_are_booked_as_such_hedged_or_not(
    monkeypatch: pytest.MonkeyPatch, hedge: bool
) -> None:
    monkeypatch.setattr(upstream, "READ_ON_MS", 10.0)
    backends = [backend(name, stops_on_disconnect=False) for name in ("a", "b")]
    rule = {"hedge": {"min_ms": 1}} if hedge else {}
    rig = known(Rig({"writer": {**rule, "backends": backends}}, a=hangs(), b=hangs()))
    reply = await rig.make(deadline_at_ms=NOW_MS + 100)
    assert reply.error is not None
    assert reply.error.code == "backend_timed_out"
    assert {(one.status, one.error_code) for one in rig.records} == {("error", "backend_timed_out")}
    assert len(rig.records) == 1 + hedge


@given(
    st.floats(0.01, 1.0), st.floats(1.0, 20.0), st.lists(st.booleans(), min_size=1, max_size=400)
)
def test_second_requests_stay_below_their_share_whoever_asks_for_them(
    share: float, burst: float, wants: list[bool]
) -> None:
    bucket = HedgeTokens(HedgeRule(share=share, burst=burst))
    taken = 0
    for made, wanted in enumerate(wants, start=1):
        bucket.earn()
        taken += wanted and bucket.take()
        assert taken <= 1 + share * made + 1e-9
