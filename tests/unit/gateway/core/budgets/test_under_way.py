"""The running sums of calls in flight say what adding all of them up would."""

from decimal import Decimal
from math import sqrt
from random import Random

import pytest

from hocket.gateway.core.budgets.budget import Account, Budget, Budgets
from hocket.gateway.core.budgets.estimate import CostSums, Estimate, Estimator, Part, cost_kind
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.budgets.under_way import DEVIATIONS, MOST_OVERRUN, UnderWay
from hocket.gateway.core.routing.history import Kind
from support.gateway.routing_rig import request

PRICES = Prices(Decimal(3), Decimal(15))
CALL = request(max_tokens=500)


class CountingEstimator(Estimator):
    """Counts how many kinds are added up."""

    parts = 0

    def part(self, kind: Kind, load: CostSums) -> Part:
        self.parts += 1
        return super().part(kind, load)


def added_up_usd(under_way: UnderWay, estimator: Estimator, one_more: Estimate) -> float:
    kinds = dict(under_way.kinds)
    kinds[one_more.kind] = kinds.get(one_more.kind, CostSums()).plus(one_more)
    parts = [estimator.part(kind, load) for kind, load in kinds.items()]
    deviation = sqrt(max(sum(part.variance for part in parts), 0.0))
    likely_usd = sum(part.mean_usd for part in parts) + DEVIATIONS * deviation
    likely_usd = min(likely_usd, sum(part.most_usd for part in parts))
    worst_usd = sum(load.worst_usd for load in under_way.kinds.values()) + one_more.usd
    return max(likely_usd, (worst_usd - MOST_OVERRUN * under_way.spent_usd) / (1 + MOST_OVERRUN))


@pytest.mark.parametrize("seed", range(20))
def test_the_sums_are_right_whatever_begins_ends_and_is_learned(seed: int) -> None:
    dice = Random(seed)
    estimator, under_way = Estimator(), UnderWay()
    begun: list[Estimate] = []
    for _ in range(400):
        kind: Kind = ("m", "p", f"n{dice.randrange(12)}")
        turn = dice.random()
        if turn < 0.4 or not begun:
            begun.append(estimator.estimate(CALL, kind, (PRICES,)))
            under_way.add(begun[-1], estimator)
        elif turn < 0.7:
            under_way.remove(begun.pop(dice.randrange(len(begun))), estimator)
            under_way.spent_usd += dice.random() / 100
        else:
            for _ in range(dice.choice((1, 1, 1, 30))):
                estimator.learn(CALL, kind, PRICES, Decimal(dice.randrange(1, 90)) / 10_000)
        one_more = estimator.estimate(CALL, kind, (PRICES,))
        if dice.random() < 0.5:  # a change may wait for the next look
            expected_usd = added_up_usd(under_way, estimator, one_more)
            copied_usd = under_way.copy().together_usd(estimator, one_more)
            assert copied_usd == under_way.together_usd(estimator, one_more)
            assert copied_usd == pytest.approx(expected_usd)
            worst_usd = sum(one.worst_usd for one in begun)
            assert (under_way.calls, under_way.worst_usd) == (len(begun), pytest.approx(worst_usd))
    for one in begun:
        under_way.remove(one, estimator)
    assert (under_way.together_usd(estimator), under_way.worst_usd, under_way.kinds) == (0, 0, {})


def test_a_burst_of_calls_of_as_many_kinds_takes_no_quadratic_time() -> None:
    estimator = CountingEstimator()
    budgets = Budgets(estimator)
    account = Account(Budget("tenant", "acme", Decimal(1_000)))
    calls = [estimator.estimate(CALL, ("m", "", f"n{number}"), (PRICES,)) for number in range(500)]
    assert budgets.claimable_usd(account, calls) > 0
    for call in calls:
        budgets.ask([(account, account.budget)], call)
        budgets.reserve([account], call)
        estimator.learn(CALL, ("m", "", f"n{len(account.under_way)}"), PRICES, Decimal("0.01"))
    assert estimator.parts < 10 * len(calls)
    learned = cost_kind(CALL, ("m", "", "n7"))
    assert learned in account.under_way.kinds
