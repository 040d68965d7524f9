"""What a call tells of the budget at the top of its run's tree."""

from decimal import Decimal

import pytest

from hocket.gateway.accounting.spending import Spending
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.budget_rules import BudgetRules
from hocket.gateway.core.budgets.price import Prices
from hocket.schemas.messages import Attribution, CallRequest, RootBudget
from support.gateway.routing_rig import NOW_MS, request

PRICES = (Prices(Decimal(1), Decimal(1)),)


def of_sub_run(run_id: str, usd: str, left: str, spent_above: str | None) -> CallRequest:
    root = RootBudget(
        run_id="top",
        budget_usd=Decimal(5),
        spent_usd=None if spent_above is None else Decimal(spent_above),
    )
    return request(
        f"{run_id}:c",
        attribution=Attribution(tenant="ours", run_id=run_id),
        budget_usd=Decimal(usd),
        budget_left_usd=Decimal(left),
        root_budget=root,
    )


@pytest.mark.parametrize(
    ("spent_above", "left"),
    [("0.4", "4"), ("4.2", "0.7"), (None, "0.1")],
    ids=["much is left", "little is left", "of a release that gave all that was left"],
)
async def test_a_sub_run_with_a_small_budget_of_its_own_leaves_the_rest_to_others(
    spent_above: str | None, left: str
) -> None:
    spending = Spending(BudgetRules(), lambda: NOW_MS)
    small = of_sub_run("small", "0.2", "0.1", spent_above)
    kind = ("writer", "", "")
    reservation = await spending.reserve(small, kind, PRICES, Cancellation())
    spending.settle(reservation, Decimal(0))
    assert spending.left_usd(of_sub_run("large", "4", "4", spent_above)) == Decimal(left)
