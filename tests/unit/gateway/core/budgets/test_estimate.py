"""What a call is expected to cost: by its own kind's history, else by its model's."""

from decimal import Decimal

import pytest

from hocket.gateway.core.budgets.budget import Answer, Budget, Budgets
from hocket.gateway.core.budgets.estimate import Estimator, cost_kind
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.budgets.under_way import UnderWay
from hocket.gateway.core.routing.history import Kind
from hocket.schemas.messages import Attribution, CallRequest
from support.gateway.routing_rig import request

PRICES = Prices(Decimal(3), Decimal(15))
LONG: Kind = ("m", "reasons", "n")
SHORT: Kind = ("m", "classifies", "n")
UNNAMED: Kind = ("m", "", "")
"""Of a call over HTTP that names neither a pipeline nor a node."""
NOW_MS = 1_795_262_400_000.0


def test_long_answers_of_others_make_no_first_call_dearer_than_its_worst_case() -> None:
    estimator = Estimator()
    for _ in range(30):
        estimator.learn(request(max_tokens=16_000), LONG, PRICES, Decimal("0.18"))
    short, long = (cost_kind(request(), kind) for kind in (SHORT, LONG))
    first = estimator.now(short, seen_usd=0.06, worst_usd=0.0601)
    assert first.usd == 0.0601
    assert estimator.now(long, seen_usd=0.06, worst_usd=0.0601).usd > 1, "it is known of this kind"


def of(tenant: str, max_tokens: int) -> CallRequest:
    return request(max_tokens=max_tokens, attribution=Attribution(tenant=tenant))


@pytest.mark.parametrize("kind", [UNNAMED, SHORT])
def test_long_answers_of_another_tenant_keep_no_call_out_whose_worst_case_fits(kind: Kind) -> None:
    estimator = Estimator()
    for _ in range(20):
        estimator.learn(of("a", 16_000), kind, PRICES, Decimal("0.24"))
    first = estimator.estimate(of("b", 500), kind, [PRICES])
    assert first.usd == first.worst_usd < 0.01
    together_usd = UnderWay().together_usd(estimator, first)
    assert together_usd == pytest.approx(first.worst_usd)


@pytest.mark.parametrize("kind", [UNNAMED, SHORT])
def test_short_answers_of_another_tenant_let_no_more_calls_through_at_once_than_fit(
    kind: Kind,
) -> None:
    estimator = Estimator()
    for _ in range(128):
        estimator.learn(of("a", 256), kind, PRICES, Decimal("0.0001"))
    budgets = Budgets(estimator)
    account = budgets.account(Budget("tenant", "b", Decimal(1), "month"), NOW_MS)
    first = estimator.estimate(of("b", 16_000), kind, [PRICES])
    granted = 0
    while budgets.ask([(account, account.budget)], first).answer is Answer.GRANTED:
        budgets.reserve([account], first)
        granted += 1
    assert granted == int(1 / first.worst_usd)


def test_what_calls_of_a_tenant_cost_is_expected_of_its_own_calls() -> None:
    estimator = Estimator()
    for tenant, usd in (("a", "0.02"), ("b", "0.05")):
        for _ in range(9):
            estimator.learn(of(tenant, 16_000), SHORT, PRICES, Decimal(usd))
    expected = [estimator.estimate(of(tenant, 16_000), SHORT, [PRICES]).usd for tenant in "ab"]
    assert expected == [pytest.approx(0.02), pytest.approx(0.05)]
