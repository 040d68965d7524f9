"""Replies that are remembered under one id, to different questions, and large ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.calls import replies
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.calls.replies import MAX_QUESTIONS, RememberedReplies
from hocket.gateway.core.calls.call_key import digest
from hocket.gateway.core.calls.reply_cache import FEW_VALUES, MAX_AGE_MS
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.schemas.messages import CallReply, CallRequest, ChatMessage
from support.gateway.routing_rig import BOUND_S, Rig, backend, request, says


def asked(number: int) -> CallRequest:
    question = ChatMessage(role="user", content=f"question {number}")
    return request("c").model_copy(update={"messages": (question,)})


def told(number: int) -> CallReply:
    return CallReply(call_id="c", model="writer", text=f"answer {number}")


async def test_each_reply_has_an_age_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0.0
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    remembered = RememberedReplies()
    for number in range(3):
        now_ms = number * 0.9 * MAX_AGE_MS
        await remembered.keep(asked(number), told(number), digest(asked(number)))
    assert [remembered.of(asked(number)) for number in range(3)] == [None, told(1), told(2)]


async def test_the_oldest_goes_where_one_id_has_too_many_or_too_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered = RememberedReplies()
    for number in range(MAX_QUESTIONS + 1):
        await remembered.keep(asked(number), told(number), digest(asked(number)))
    assert remembered.of(asked(0)) is None
    assert remembered.of(asked(1)) == told(1)
    monkeypatch.setattr(replies, "MAX_KEY_BYTES", 1)
    await remembered.keep(asked(9), told(9), digest(asked(9)))
    assert [remembered.of(asked(number)) for number in (4, 9)] == [None, told(9)]


async def test_a_reply_of_many_values_is_counted_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[Any] = []

    async def beside(work: Callable[[], Any]) -> Any:
        counted.append(work())
        return counted[-1]

    monkeypatch.setattr(replies, "beside", beside)
    remembered = RememberedReplies()
    large = told(1).model_copy(update={"data": [[1.5]] * FEW_VALUES})
    for number, reply in ((0, told(0)), (1, large)):
        await remembered.keep(asked(number), reply, digest(asked(number)))
        assert remembered.of(asked(number)) == reply
    (size,) = counted
    assert size > 64 * FEW_VALUES


@pytest.mark.parametrize("what", ["MAX_VALUES", "MAX_BYTES"])
async def test_a_reply_that_is_too_large_to_be_remembered_costs_no_other_one_its_place(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered = RememberedReplies()
    await remembered.keep(asked(0), told(0), digest(asked(0)))
    large = told(1).model_copy(update={"data": [[1.5]] * FEW_VALUES})
    monkeypatch.setattr(replies, what, FEW_VALUES)
    await remembered.keep(asked(1), large, digest(asked(1)))
    assert [remembered.of(asked(number)) for number in (0, 1)] == [told(0), None]


async def test_a_call_is_made_once_though_it_is_repeated_while_its_reply_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting, may_end = asyncio.Event(), asyncio.Event()

    async def beside(work: Callable[[], Any]) -> Any:
        counting.set()
        await may_end.wait()
        return work()

    monkeypatch.setattr(replies, "beside", beside)
    large = [[1.5]] * FEW_VALUES
    rig = Rig({"writer": {"backends": [backend("a")]}}, a=says("tidal", data=large))
    calls = CallRegistry(rig.calls, GatewayMetrics(CollectorRegistry()))
    made = [await asyncio.wait_for(calls.begin(request("c")), BOUND_S)]
    await asyncio.wait_for(counting.wait(), BOUND_S)
    made.append(await asyncio.wait_for(calls.begin(request("c")), BOUND_S))
    may_end.set()
    await calls.drain(drain_ms=60_000, flush_ms=60_000)
    made.append(await asyncio.wait_for(calls.begin(request("c")), BOUND_S))
    assert [reply.data for reply in made] == [large] * 3
    assert len(rig.records) == 1
