"""What gateways ask a ledger that answers late, or not at all."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.accounting import spent_before
from hocket.gateway.accounting.spent_before import (
    LONG_TIMEOUT_MS,
    MAX_LONG,
    METERED_MS,
    TIMEOUT_MS,
    AccountMeter,
    SpentBefore,
)
from hocket.gateway.core.budgets.budget import Account, Budget
from hocket.kit.nats.errors import BusUnavailable
from hocket.ledger.spent import TIMEOUT_S
from hocket.schemas.messages import SpentAsked, SpentTold

BOUND_S = 30.0
TOLD = SpentTold(spent_usd=Decimal("61.5"))


class Answer:
    """A message with what a ledger tells."""

    headers = None
    data = TOLD.model_dump_json().encode()


class Bus:
    """A ledger that answers about periods when `answers` is set, or is `away`."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.away = False
        self.timeouts_ms: list[float] = []

    async def request(self, _: str, body: bytes, *, timeout_ms: float, **__: Any) -> Answer:
        self.timeouts_ms.append(timeout_ms)
        if self.away:
            raise BusUnavailable(reason="no answer")
        if SpentAsked.model_validate_json(body).run_id is None:
            await self.answers.wait()
        return Answer()


def budget_of(level: Any, name: str, now_ms: list[float], bus: Bus) -> tuple[Account, AccountMeter]:
    account = Account(Budget(level, name, Decimal(10), "month", "acme"), is_unknown=True)
    ledger = SpentBefore(bus)  # type: ignore[arg-type]
    return account, AccountMeter(ledger, lambda: now_ms[0], lambda *_: None)


async def test_what_takes_long_to_add_up_is_waited_for_and_no_call_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spent_before, "CALL_WAITS_S", 0.001)
    bus = Bus()
    account, meter = budget_of("tenant", "acme", [0.0], bus)
    asking = meter.asks(account, often=False)
    assert asking is not None
    async with asyncio.timeout(BOUND_S):
        await meter.wait(asking, account)
        assert account.is_unknown
        assert meter.asks(account, often=False) is asking
        bus.answers.set()
        await asking
    assert (account.is_unknown, account.metered_usd) == (False, TOLD.spent_usd)
    assert bus.timeouts_ms == [LONG_TIMEOUT_MS]
    assert LONG_TIMEOUT_MS > TIMEOUT_S * 1000


async def test_after_a_vain_question_a_ledger_has_its_rest() -> None:
    bus, now_ms = Bus(), [0.0]
    bus.away = True
    account, meter = budget_of("pipeline", "acme/etl", now_ms, bus)
    asking = meter.asks(account, often=False)
    assert asking is not None
    now_ms[0] = LONG_TIMEOUT_MS
    await asking
    assert account.is_unknown
    now_ms[0] += METERED_MS
    assert meter.asks(account, often=False) is None
    now_ms[0] += 1
    again = meter.asks(account, often=False)
    assert again is not None
    await again


async def test_questions_that_take_long_leave_a_tenants_others_their_turn() -> None:
    bus = Bus()
    ledger = SpentBefore(bus)  # type: ignore[arg-type]
    months = [SpentAsked(tenant="acme", pipeline=f"p{number}") for number in range(20)]
    async with asyncio.timeout(BOUND_S):
        asking = [
            asyncio.create_task(ledger.ask(one, BOUND_S * 1000, is_long=True)) for one in months
        ]
        while len(bus.timeouts_ms) < MAX_LONG:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await ledger.ask(SpentAsked(tenant="acme", run_id="mine")) == TOLD
        assert bus.timeouts_ms == [LONG_TIMEOUT_MS] * MAX_LONG + [TIMEOUT_MS]
        bus.answers.set()
        assert await asyncio.gather(*asking) == [TOLD] * len(months)
