"""What a call is expected to cost: by its own kind's history, else by its model's."""

from decimal import Decimal

from hocket.gateway.core.budgets.estimate import Estimator
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.routing.history import Kind
from support.gateway.routing_rig import request

PRICES = Prices(Decimal(3), Decimal(15))
LONG: Kind = ("m", "reasons", "n")
SHORT: Kind = ("m", "classifies", "n")


def test_long_answers_of_others_make_no_first_call_dearer_than_its_worst_case() -> None:
    estimator = Estimator()
    for _ in range(30):
        estimator.learn(request(max_tokens=16_000), LONG, PRICES, Decimal("0.18"))
    first = estimator.now(SHORT, seen_usd=0.06, worst_usd=0.0601)
    assert first.usd == 0.0601
    assert estimator.now(LONG, seen_usd=0.06, worst_usd=0.0601).usd > 1, "it is known of this kind"
