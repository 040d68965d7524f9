"""Calls that wait for a budget end by their deadline, whatever they wait for."""

import asyncio
from decimal import Decimal

import pytest

from hocket.gateway.accounting.reservations import AGAIN_MS, Reservations
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget import Budget, Budgets
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.errors import BudgetExceeded, DeadlinePassed
from support.gateway.routing_rig import NOW_MS


async def test_a_call_that_waits_for_its_gateways_claim_ends_at_its_deadline() -> None:
    """The claim is not written while NATS is away; the budget itself has room."""
    estimator = Estimator()
    budgets = Budgets(estimator)
    account = budgets.account(Budget("tenant", "acme", Decimal(100), "day"), NOW_MS)
    account.claim_usd = Decimal(0)
    reservations = Reservations(budgets, estimator, lambda: NOW_MS, None)
    estimate = Estimate(("writer", "", ""), 1.0, 1.0, 1.0)
    waiting = reservations.reserve(
        ((account, account.budget),), estimate, NOW_MS + 1, Cancellation()
    )
    with pytest.raises(DeadlinePassed):
        await asyncio.wait_for(waiting, 5)
    assert reservations.waiting == 0


@pytest.mark.parametrize("spent_usd", [0, 100])
async def test_a_call_may_be_sent_again_soon_if_others_hold_the_rest_else_in_the_next_period(
    spent_usd: int,
) -> None:
    estimator = Estimator()
    budgets = Budgets(estimator)
    account = budgets.account(Budget("tenant", "acme", Decimal(100), "day"), NOW_MS)
    account.spent_usd = Decimal(spent_usd)
    reservations = Reservations(budgets, estimator, lambda: NOW_MS, None)
    estimate = Estimate(("writer", "", ""), 90.0, 90.0, 90.0)
    budgets.reserve([account], estimate)
    waiting = reservations.reserve(
        ((account, account.budget),), estimate, NOW_MS + 1, Cancellation()
    )
    with pytest.raises(BudgetExceeded) as refused:
        await asyncio.wait_for(waiting, 5)
    error = refused.value.info()
    soon = ("reserved", NOW_MS + AGAIN_MS)
    assert (error.state, error.retry_at_ms) == (("spent", account.until_ms) if spent_usd else soon)
