"""What an attempt spends on models: each call is reported once, by the attempt that paid for it."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal, Inexact, localcontext
from typing import Any

import pytest

from hocket.schemas.journals import JournalEntry
from hocket.schemas.messages import Attribution, CallReply, CallRequest
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.journal import Found
from hocket.workers.runtime.models.attempt_calls import AttemptCalls

NOW_MS = 1_800_000_000_000.0


class Calls:
    """Stands for the gateway: each call costs the same."""

    def __init__(self) -> None:
        self.asked: list[CallRequest] = []

    async def make(self, request: CallRequest, headers: dict[str, str]) -> CallReply:
        self.asked.append(request)
        return CallReply(
            call_id=request.call_id, input_tokens=3, output_tokens=2, cost_usd=Decimal("0.25")
        )


class Kept:
    """Stands for the journal: what was answered before, and whether its attempt reported it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.unpaid = False

    async def once(
        self, name: str, digest: str, ask: Callable[[], Awaitable[tuple[Any, Decimal, bool]]]
    ) -> tuple[Any, Found | None]:
        if digest in self.values:
            entry = JournalEntry(ordinal=1, name=name, started_at_ms=1.0, finished_at_ms=1.0)
            return self.values[digest], Found(entry, self.unpaid)
        self.values[digest], _, _ = await ask()
        return self.values[digest], None


def calls_of(
    gateway: Calls, delivery: int = 1, has_ended: Callable[[], bool] | None = None
) -> AttemptCalls:
    step = RequestedStep(
        run_id="r1", tenant="t", pipeline="p", version=1, step="a", node="a", type="python",
        attempt=1, input={}, config={}, deadline_at_ms=NOW_MS, slack_ms=0.0, timeout_ms=1.0,
        priority="standard", partition=0, epoch=1,
    )  # fmt: skip
    return AttemptCalls(
        gateway,  # type: ignore[arg-type]
        step,
        attempt_id="r1:a:1",
        delivery=delivery,
        deadline_at_ms=NOW_MS,
        attribution=Attribution(tenant="t", run_id="r1"),
        has_ended=has_ended,
        traceparent="",
    )


async def test_every_call_counts_and_has_an_id_of_its_own() -> None:
    gateway = Calls()
    calls = calls_of(gateway, delivery=2)
    for _ in range(2):
        await calls.reply(calls.request("m"), None)
    assert calls.spent is not None
    spent = calls.spent
    assert (spent.calls, spent.input_tokens, spent.output_tokens) == (2, 6, 4)
    assert spent.cost_usd == Decimal("0.50")
    assert [one.call_id for one in gateway.asked] == ["r1:a:1:2:1", "r1:a:1:2:2"]


@pytest.mark.parametrize(("unpaid", "cost_usd"), [(True, Decimal("0.25")), (False, None)])
async def test_a_call_of_an_earlier_delivery_is_reported_where_that_one_did_not(
    unpaid: bool, cost_usd: Decimal | None
) -> None:
    gateway, kept = Calls(), Kept()
    first = calls_of(gateway)
    asked = await first.reply(first.request("m", max_tokens=9), kept.once)
    kept.unpaid = unpaid
    again = calls_of(gateway, delivery=2)
    reply = await again.reply(again.request("m", max_tokens=9), kept.once)
    assert (reply.cost_usd, reply.input_tokens) == (asked.cost_usd, asked.input_tokens)
    assert len(gateway.asked) == 1
    assert (again.spent and again.spent.cost_usd) == cost_usd


async def test_the_decimal_context_of_a_handler_changes_no_cost() -> None:
    calls = calls_of(Calls())
    with localcontext() as own:
        own.prec, own.traps[Inexact] = 1, True
        for _ in range(3):
            await calls.reply(calls.request("m"), None)
    assert calls.spent is not None
    assert calls.spent.cost_usd == Decimal("0.75")


async def test_another_question_is_asked() -> None:
    gateway, kept = Calls(), Kept()
    calls = calls_of(gateway)
    for fields in ({"max_tokens": 9}, {"max_tokens": 10}, {"max_tokens": 9, "temperature": 0.5}):
        await calls.reply(calls.request("m", **fields), kept.once)
    assert len(gateway.asked) == 3


async def test_what_a_handler_left_behind_makes_no_more_calls() -> None:
    gateway, ended = Calls(), False
    calls = calls_of(gateway, has_ended=lambda: ended)
    await calls.reply(calls.request("m"), None)
    ended = True
    with pytest.raises(asyncio.CancelledError):
        await calls.reply(calls.request("m"), None)
    assert len(gateway.asked) == 1
