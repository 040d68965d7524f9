"""By how much a budget can be overrun, whatever callers do, and how much of it honest callers use."""

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from hocket.gateway.core.budgets.budget import Account, Answer, Budget, Budgets, Reservation
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.budgets.under_way import MOST_OVERRUN
from hocket.gateway.core.routing.history import Kind
from hocket.schemas.messages import Attribution
from support.gateway.routing_rig import NOW_MS, request

PRICES = Prices(Decimal(1), Decimal(10))
KIND: Kind = ("m", "p", "n")
LONGEST = 16_384
ROUNDING = 1e-9

Cost = Callable[[Estimate], float]


class Gateway:
    """Calls of one tenant at one gateway, which is alone, or has claimed a part of the budget."""

    def __init__(self, limit_usd: str, claim_usd: str | None = None) -> None:
        self.estimator = Estimator()
        self.budgets = Budgets(self.estimator)
        budget = Budget("tenant", "evil", Decimal(limit_usd), "day")
        self.account = self.budgets.account(budget, NOW_MS)
        self.account.claim_usd = None if claim_usd is None else Decimal(claim_usd)
        self.under_way: list[tuple[Reservation, Kind, Any]] = []
        self.most_usd = 0.0
        """The worst case of the dearest call."""

    def train(self, calls: int, usd: str, kind: Kind = KIND, max_tokens: int = LONGEST) -> None:
        for _ in range(calls):
            self.estimator.learn(self.call(max_tokens), kind, PRICES, Decimal(usd))

    def begin(self, kind: Kind = KIND, max_tokens: int = LONGEST) -> Answer:
        call = self.call(max_tokens)
        estimate = self.estimator.estimate(call, kind, [PRICES])
        answer = self.budgets.ask([(self.account, self.account.budget)], estimate).answer
        if answer is Answer.GRANTED and not self.budgets.covers(self.account, estimate):
            answer = Answer.WAIT
        if answer is Answer.GRANTED:
            self.most_usd = max(self.most_usd, estimate.worst_usd)
            reservation = self.budgets.reserve([self.account], estimate)
            self.under_way.append((reservation, kind, call))
        return answer

    def end(self, which: int, cost: Cost) -> None:
        reservation, kind, call = self.under_way.pop(which)
        usd = Decimal(repr(cost(reservation.estimate)))
        self.budgets.settle(reservation, usd)
        self.estimator.learn(call, kind, PRICES, usd)

    def end_all(self, cost: Cost) -> None:
        while self.under_way:
            self.end(0, cost)

    @property
    def spent_usd(self) -> float:
        return float(self.account.spent_usd)

    def call(self, max_tokens: int) -> Any:
        return request(max_tokens=max_tokens, attribution=Attribution(tenant="evil"))


def at_worst(estimate: Estimate) -> float:
    return estimate.worst_usd


def test_a_hundred_cheap_calls_do_not_let_two_hundred_dear_ones_through() -> None:
    gateway = Gateway("1")
    gateway.train(100, "0.00002")
    for _ in range(200):
        gateway.begin()
    assert len(gateway.under_way) < 10
    gateway.end_all(at_worst)
    assert gateway.spent_usd <= 1 + MOST_OVERRUN + gateway.most_usd + ROUNDING


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_traffic_overruns_a_budget_by_more_than_its_share_and_one_call(
    seed: int, strict: bool
) -> None:
    """The caller names the kinds, trains them, and decides what each call costs within its limit."""
    dice, gateway = Random(seed), Gateway("1")
    gateway.budgets.strict = strict
    kinds: list[Kind] = [("m", "p", f"n{number}") for number in range(dice.choice((1, 3, 30)))]

    def mostly_cheap(estimate: Estimate) -> float:
        return estimate.worst_usd * (1e-4 if dice.random() < 0.7 else 1)

    for _ in range(600):
        turn = dice.random()
        if turn < 0.6:
            gateway.begin(dice.choice(kinds), dice.choice((1, 500, LONGEST, 50_000)))
        elif turn < 0.7:
            gateway.train(dice.choice((1, 100)), "0.00002", dice.choice(kinds))
        elif gateway.under_way:
            gateway.end(dice.randrange(len(gateway.under_way)), mostly_cheap)
    gateway.end_all(at_worst)
    share = 0 if strict else MOST_OVERRUN
    assert gateway.spent_usd <= 1 + share + gateway.most_usd + ROUNDING


def test_the_share_does_not_grow_with_the_number_of_gateways() -> None:
    gateways = [Gateway("4", claim_usd="1") for _ in range(4)]
    for gateway in gateways:
        gateway.train(100, "0.00002")
        for _ in range(200):
            gateway.begin()
        for _ in range(3):
            gateway.end(0, lambda _: 0.01)
        for _ in range(200):
            gateway.begin()
        gateway.end_all(at_worst)
    spent_usd = sum(gateway.spent_usd for gateway in gateways)
    calls_usd = sum(gateway.most_usd for gateway in gateways)
    assert spent_usd <= 4 * (1 + MOST_OVERRUN) + calls_usd + ROUNDING


def test_what_a_gateway_claims_covers_the_worst_cases_in_flight() -> None:
    gateway = Gateway("10")
    gateway.train(100, "0.00002")
    for _ in range(30):
        gateway.begin()
    worst_usd = sum(reservation.estimate.worst_usd for reservation, _, _ in gateway.under_way)
    claim_usd = float(gateway.budgets.claimable_usd(gateway.account, ()))
    assert worst_usd == pytest.approx((1 + MOST_OVERRUN) * claim_usd)


# ---- honest callers ---------------------------------------------------------------------------


def honest(dice: Random) -> Cost:
    """Answers of 50 to 2,000 tokens, of calls that allow 16,384 each."""
    return lambda _: dice.choice((50, 120, 300, 700, 2_000)) * 10 / 1e6


def used_by(limit_usd: str, seed: int, at_once: int) -> tuple[Account, list[int]]:
    """Return the account after as many honest calls as it lets through, of which `at_once` come at the
    same time, and how many of them were made side by side whenever one ended."""
    dice, gateway, beside = Random(seed), Gateway(limit_usd), []
    cost, refused = honest(dice), False
    while not refused or gateway.under_way:
        while not refused and len(gateway.under_way) < at_once:
            answer = gateway.begin()
            refused = answer is Answer.REFUSED
            if answer is not Answer.GRANTED:
                break
        if gateway.under_way:
            beside.append(len(gateway.under_way))
            gateway.end(dice.randrange(len(gateway.under_way)), cost)
    return gateway.account, beside


@pytest.mark.parametrize("limit_usd", ["1", "10"])
def test_honest_callers_use_nearly_all_of_a_budget_though_they_allow_long_answers(
    limit_usd: str,
) -> None:
    for seed in range(10):
        account, _ = used_by(limit_usd, seed, at_once=50)
        left_usd = float(account.left_usd(account.budget.usd))
        assert left_usd < 0.0201, "no more is left over than one call is expected to cost"
        assert account.spent_usd < account.budget.usd + Decimal("0.02")


def test_honest_calls_go_side_by_side_until_the_end_of_a_budget() -> None:
    _, beside = used_by("20", seed=1, at_once=10)
    assert min(beside[100 : len(beside) // 2]) == 10
    near_the_end = beside[-len(beside) // 20 :]
    assert sum(near_the_end) / len(near_the_end) > 9, (
        "a tenth of 20 USD has room for 12 worst cases"
    )
