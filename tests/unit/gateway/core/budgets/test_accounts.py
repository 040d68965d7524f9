"""Accounts of one gateway: what may be forgotten, what is claimed, and whose they are."""

from decimal import Decimal

import pytest

from hocket.gateway.core.budgets.budget import Account, Answer, Budget, Budgets
from hocket.gateway.core.budgets.budget_rules import BudgetRules
from hocket.gateway.core.budgets.estimate import Estimate, Estimator
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.budgets.run_accounts import RunAccounts
from hocket.gateway.core.errors import BudgetsFull
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage, RootBudget

KIND = ("writer", "report", "draft")
NOW_MS = 1_795_262_400_000.0  # 2026-11-21 12:00 UTC
HOUR_MS = 3_600_000.0


def estimate(usd: float) -> Estimate:
    return Estimate(KIND, usd, usd, usd)


def request(call_id: str, who: Attribution) -> CallRequest:
    messages = (ChatMessage(role="user", content="x" * 4_000),)
    return CallRequest(
        call_id=call_id,
        model="writer",
        messages=messages,
        max_tokens=1_000,
        attribution=who,
        deadline_at_ms=NOW_MS + HOUR_MS,
    )


def tenant(name: str, usd: int = 1) -> Budget:
    return Budget("tenant", name, Decimal(usd), "hour")


def run(tenant: str, name: str) -> Account:
    return Account(Budget("run", name, Decimal(1), tenant=tenant))


def test_an_account_with_a_call_in_flight_is_not_forgotten_though_its_period_is_over() -> None:
    budgets = Budgets(Estimator(), max_period_accounts=1)
    busy = budgets.account(tenant("busy"), NOW_MS)
    reservation = budgets.reserve([busy], estimate(0.5))
    for at_ms in (NOW_MS, NOW_MS + 2 * HOUR_MS):
        with pytest.raises(BudgetsFull):
            budgets.account(tenant("other"), at_ms)
    budgets.settle(reservation, Decimal(0))
    budgets.account(tenant("other"), NOW_MS)
    assert len(budgets) == 1


def test_what_was_once_known_to_be_spent_stays_spent() -> None:
    budgets = Budgets(Estimator())
    budgets.account(tenant("acme"), NOW_MS, Decimal("0.9"))
    assert budgets.account(tenant("acme"), NOW_MS).left_usd(Decimal(1)) == Decimal("0.1")


def test_what_others_spent_counts_beside_all_that_this_gateway_spends_afterwards() -> None:
    budgets = Budgets(Estimator())
    account = budgets.account(tenant("acme"), NOW_MS)
    account.spent_usd = Decimal("0.1")
    budgets.account(tenant("acme"), NOW_MS, Decimal("0.6"))  # a tool has charged 0.5
    account.spent_usd = Decimal("0.3")
    assert account.left_usd(Decimal(1)) == Decimal("0.2")
    assert account.unclaimed_usd(Decimal(1)) == Decimal("0.2")
    budgets.account(tenant("acme"), NOW_MS, Decimal("0.8"))  # now the caller knows of that, too
    assert account.left_usd(Decimal(1)) == Decimal("0.2")


def test_an_account_follows_its_budget_when_that_is_changed() -> None:
    budgets = Budgets(Estimator())
    account = budgets.account(tenant("acme", 1), NOW_MS)
    account.spent_usd = Decimal("0.5")
    assert budgets.account(tenant("acme", 3), NOW_MS) is account
    assert account.left_usd(account.budget.usd) == Decimal("2.5")


def test_any_number_of_pipelines_that_spent_nothing_make_room_for_each_other() -> None:
    budgets = Budgets(Estimator(), max_period_accounts=3, max_pipeline_accounts=2)
    for number in range(20):
        name = f"acme/p{number}"
        budgets.account(Budget("pipeline", name, Decimal(1), "hour", tenant="acme"), NOW_MS)
        budgets.account(tenant(f"t{number}"), NOW_MS)
        assert len(budgets) <= 3


def test_no_wish_is_claimed_before_an_earlier_one_that_does_not_fit() -> None:
    budgets = Budgets(Estimator())
    account = budgets.account(tenant("acme"), NOW_MS)
    account.spent_usd = Decimal("0.1")
    wishes = [estimate(0.3), estimate(0.7), estimate(0.05)]
    assert float(budgets.claimable_usd(account, wishes)) == pytest.approx(0.1 + 0.3)


def test_the_narrowest_of_the_accounts_that_make_a_call_wait_is_named() -> None:
    budgets = Budgets(Estimator())
    accounts = [budgets.account(tenant(name), NOW_MS) for name in ("narrow", "wide")]
    budgets.reserve(accounts, estimate(0.9))
    decision = budgets.ask([(one, one.budget) for one in accounts], estimate(0.5))
    assert (decision.answer, decision.account) == (Answer.WAIT, accounts[0])


def test_what_ended_calls_had_reserved_is_reserved_no_more() -> None:
    budgets = Budgets(Estimator())
    account = budgets.account(tenant("acme", 100), NOW_MS)
    first = budgets.reserve([account], estimate(0.25))
    alone = dict(account.under_way.kinds)
    second = budgets.reserve([account], estimate(0.5))
    budgets.settle(second, Decimal(0))
    assert account.under_way.kinds == alone
    budgets.settle(first, Decimal(0))
    assert account.under_way.kinds == {}


def test_the_run_that_was_used_last_is_kept() -> None:
    accounts: RunAccounts[Account] = RunAccounts(limit=2)
    first = accounts.of("acme", "a", lambda: run("acme", "a"))
    accounts.of("acme", "b", lambda: run("acme", "b"))
    for other in ("a", "c"):
        accounts.of("acme", other, lambda: run("acme", "other"))
    assert accounts.of("acme", "a", lambda: pytest.fail("forgotten")) is first


def test_the_tenant_with_the_most_runs_makes_room_again_once_its_calls_have_ended() -> None:
    accounts: RunAccounts[Account] = RunAccounts(limit=4)
    budgets = Budgets(Estimator())

    def made(tenant: str, name: str) -> Account:
        return accounts.of(tenant, name, lambda: run(tenant, name))

    found = [made("large", "a"), made("large", "b"), made("large", "c"), made("small", "a")]
    reservation = budgets.reserve(found, estimate(0.1))
    made("small", "b")
    assert len(accounts) == 5, "where every run has a call in flight, none is forgotten"
    budgets.settle(reservation, Decimal(0))
    made("new", "a")
    assert len(accounts) == 5
    assert accounts.of("small", "a", lambda: pytest.fail("forgotten")) is found[-1]


def test_calls_without_a_run_share_no_budget() -> None:
    found = [
        BudgetRules().budgets_of(request(call_id, Attribution(tenant="acme")), Decimal(1))
        for call_id in ("c1", "c2")
    ]
    assert [[budget.name for budget in budgets] for budgets in found] == [["acme/c1"], ["acme/c2"]]


def test_no_other_gateway_needs_to_know_the_budget_of_a_call_without_a_run() -> None:
    top = RootBudget(run_id="top", budget_usd=Decimal(9))
    for run_id, expected in ((None, [False, True]), ("r1", [True, True])):
        who = Attribution(tenant="acme", run_id=run_id)
        budgets = BudgetRules().budgets_of(request("c1", who), Decimal(1), root=top)
        assert [budget.is_shared for budget in budgets] == expected


def test_the_worst_case_writes_all_input_to_a_cache_where_that_costs_more() -> None:
    asked = request("c", Attribution(tenant="acme"))
    cheap = Prices(Decimal(3), Decimal(15))
    dear = Prices(Decimal(3), Decimal(15), cache_write_usd_per_mtok=Decimal("3.75"))
    usual, worst = (Estimator().estimate(asked, KIND, [one]).worst_usd for one in (cheap, dear))
    of_input, of_output = usual - 0.015, 0.015
    assert of_input == pytest.approx(0.003, rel=0.01)
    assert worst == pytest.approx(of_input * 3.75 / 3 + of_output)
