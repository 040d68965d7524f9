"""Budgets: what is reserved, who waits, who is refused, and by how much a budget can be overrun."""

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.budgets.budget import (
    Account,
    Answer,
    Budget,
    Budgets,
    Held,
    Reservation,
)
from hocket.gateway.core.budgets.budget_rules import Allowance, BudgetRules
from hocket.gateway.core.budgets.estimate import FREE, Estimate, Estimator
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.budgets.run_accounts import RunAccounts
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.errors import BudgetsFull, RoutingInvalid
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage, Document

PRICES = Prices(Decimal(2), Decimal(8))
KIND = ("writer", "report", "draft")
NOW_MS = 1_795_262_400_000.0  # 2026-11-21 12:00 UTC
HOUR_MS = 3_600_000.0

Cost = Callable[[random.Random], float]


def held(*accounts: Account) -> list[Held]:
    return [(one, one.budget) for one in accounts]


def request(**fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": "c",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="x" * 4_000),),
            "deadline_at_ms": NOW_MS + HOUR_MS,
            **fields,
        }
    )


class Run:
    """Calls of one run that arrive at once, and end in the order of the dice."""

    def __init__(self, seed: int, cost: Cost, limit_usd: float, *, strict: bool = False) -> None:
        self.dice = random.Random(seed)
        self.cost = cost
        self.estimator = Estimator()
        self.budgets = Budgets(self.estimator)
        self.budgets.strict = strict
        self.limit_usd = limit_usd
        self.account = self.budgets.account(Budget("run", "r", Decimal(repr(limit_usd))), NOW_MS)
        self.request = request(max_tokens=16_384)
        self.under_way: list[tuple[Reservation, float]] = []
        self.through = self.refused = 0
        self.largest_error_usd = 0.0

    def make(self, calls: int) -> None:
        waiting = calls
        while waiting or self.under_way:
            waiting -= self._let_in(waiting)
            if not self.under_way:
                assert not waiting, "everybody waits, and nobody is under way"
                return
            self._end_one()

    def _let_in(self, waiting: int) -> int:
        for decided in range(waiting):
            estimate = self.estimator.estimate(self.request, KIND, [PRICES])
            answer = self.budgets.ask(held(self.account), estimate).answer
            if answer is Answer.WAIT:
                return decided
            if answer is Answer.REFUSED:
                self.refused += 1
            else:
                reservation = self.budgets.reserve([self.account], estimate)
                self.under_way.append((reservation, self.cost(self.dice)))
        return waiting

    def _end_one(self) -> None:
        reservation, usd = self.under_way.pop(self.dice.randrange(len(self.under_way)))
        exact = Decimal(repr(usd))
        self.budgets.settle(reservation, exact)
        self.estimator.learn(self.request, KIND, PRICES, exact)
        self.largest_error_usd = max(self.largest_error_usd, usd - reservation.estimate.usd)
        self.through += 1

    @property
    def overrun_usd(self) -> float:
        return float(self.account.spent_usd) - self.limit_usd


def always(dice: random.Random) -> float:
    return 0.005


def uniform(dice: random.Random) -> float:
    return dice.uniform(0.001, 0.009)


def exponential(dice: random.Random) -> float:
    return dice.expovariate(1 / 0.005)


def lognormal(dice: random.Random) -> float:
    return dice.lognormvariate(math.log(0.005) - 0.5, 1)


def dear(dice: random.Random) -> float:
    return dice.uniform(0.05, 0.09)


MEANS = {always: 0.005, uniform: 0.005, exponential: 0.005, lognormal: 0.005, dear: 0.07}


@pytest.mark.parametrize("cost", [always, uniform, exponential, lognormal, dear])
def test_two_hundred_calls_at_once_overrun_a_budget_for_a_hundred_by_one_error_at_most(
    cost: Cost,
) -> None:
    for seed in range(40):
        run = Run(seed, cost, 100 * MEANS[cost])
        run.make(200)
        assert run.overrun_usd <= max(run.largest_error_usd, 0.0) + 1e-9, f"seed {seed}"


@pytest.mark.parametrize("cost", [always, uniform, dear])
def test_reservations_keep_nobody_out_for_good(cost: Cost) -> None:
    through = []
    for seed in range(40):
        run = Run(seed, cost, 100 * MEANS[cost])
        run.make(200)
        assert run.through + run.refused == 200
        through.append(run.through)
    assert sum(through) / len(through) >= 98
    assert always is not cost or min(through) == 100


def test_what_is_left_when_calls_are_refused_is_less_than_one_is_expected_to_cost() -> None:
    for seed in range(40):
        run = Run(seed, lognormal, 0.5)
        run.make(300)
        estimate = run.estimator.estimate(run.request, KIND, [PRICES])
        assert not run.refused or -run.overrun_usd < estimate.usd


def test_a_strict_budget_holds_even_when_one_call_in_fifteen_costs_twenty_times_the_others() -> (
    None
):
    def rarely_dear(dice: random.Random) -> float:
        return 0.002 if dice.random() < 0.93 else 0.045

    for seed in range(40):
        run = Run(seed, rarely_dear, 0.5, strict=True)
        run.make(200)
        assert run.overrun_usd <= max(run.largest_error_usd, 0.0) + 1e-9, f"seed {seed}"


def test_calls_go_side_by_side_as_soon_as_their_cost_is_known() -> None:
    run = Run(1, always, 0.5)
    run.request = request(max_tokens=800)
    unknown = run.estimator.estimate(run.request, KIND, [PRICES])
    assert unknown.usd == unknown.worst_usd > 0.008
    for _ in range(50):
        run.estimator.learn(run.request, KIND, PRICES, Decimal("0.0045"))
    assert run._let_in(200) > 0
    assert len(run.under_way) >= 64


# ---- one account ------------------------------------------------------------------------------


def estimate(usd: float, *, worst: float | None = None) -> Estimate:
    return Estimate(KIND, usd, worst or usd, usd)


def account(budgets: Budgets, usd: str, level: str = "run") -> Account:
    return budgets.account(Budget(level, level, Decimal(usd)), NOW_MS)  # type: ignore[arg-type]


def test_a_call_that_does_not_fit_into_what_was_spent_is_refused_and_told_where() -> None:
    budgets = Budgets(Estimator())
    run, tenant = account(budgets, "9"), account(budgets, "1", "tenant")
    tenant.spent_usd = Decimal("0.7")
    verdict = budgets.ask(held(run, tenant), estimate(0.5))
    assert (verdict.answer, verdict.account) == (Answer.REFUSED, tenant)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 100},
        {"openai": {"path": "chat/completions", "body": {"max_tokens": 25, "n": 4}}},
        {"openai": {"path": "embeddings", "body": {"input": "word " * 400}}},
    ],
)
def test_a_call_of_which_nothing_is_known_passes_no_budget_below_its_own_bound(fields: Any) -> None:
    estimator = Estimator()
    budgets = Budgets(estimator)
    messages = () if "openai" in fields else request().messages
    unknown = estimator.estimate(request(messages=messages, **fields), KIND, [PRICES])
    assert unknown.usd == unknown.worst_usd > 0
    below, above = (
        budgets.account(Budget("run", name, Decimal(unknown.usd) * share), NOW_MS)
        for name, share in (("below", Decimal("0.99")), ("above", Decimal("1.01")))
    )
    assert budgets.ask(held(below), unknown).answer is Answer.REFUSED
    assert budgets.ask(held(above), unknown).answer is Answer.GRANTED
    budgets.reserve([above], unknown)
    assert budgets.ask(held(above), unknown).answer is Answer.WAIT


def test_a_free_call_fits_into_an_empty_budget() -> None:
    budgets = Budgets(Estimator())
    assert budgets.ask(held(account(budgets, "0")), FREE).answer is Answer.GRANTED


def test_a_released_reservation_leaves_no_trace() -> None:
    budgets = Budgets(Estimator())
    one = account(budgets, "1")
    held = [budgets.reserve([one], estimate(0.1)) for _ in range(3)]
    for reservation in held:
        budgets.settle(reservation, Decimal(0))
    assert (one.under_way.calls, one.spent_usd, one.left_usd(one.budget.usd)) == (0, 0, 1)


def test_what_the_caller_knows_to_be_spent_counts_if_it_is_more() -> None:
    budgets = Budgets(Estimator())
    budget = Budget("run", "r", Decimal(1))
    budgets.account(budget, NOW_MS).spent_usd = Decimal("0.4")
    left = [
        budgets.account(budget, NOW_MS, Decimal(known)).left_usd(budget.usd)
        for known in ("0.3", "0.9")
    ]
    assert left == [Decimal("0.6"), Decimal("0.1")]


@pytest.mark.parametrize(
    ("per", "until_ms"),
    [("hour", 1.0), ("day", 12.0), ("month", 9.5 * 24)],
)
def test_a_period_starts_with_a_new_account(per: Any, until_ms: float) -> None:
    budgets = Budgets(Estimator())
    budget = Budget("tenant", "acme", Decimal(1), per)
    now = budgets.account(budget, NOW_MS)
    assert now.until_ms == NOW_MS + until_ms * HOUR_MS
    assert budgets.account(budget, now.until_ms - 1) is now
    assert budgets.account(budget, now.until_ms) is not now


def test_the_run_not_used_for_longest_is_forgotten_unless_a_call_is_under_way() -> None:
    budgets = Budgets(Estimator(), max_run_accounts=2)
    busy = budgets.account(Budget("run", "busy", Decimal(1)), NOW_MS)
    budgets.reserve([busy], estimate(0.1))
    for name in ("a", "b", "c"):
        budgets.account(Budget("run", name, Decimal(1)), NOW_MS)
    assert len(budgets) == 2
    assert budgets.account(Budget("run", "busy", Decimal(1)), NOW_MS) is busy


def spent(budgets: Budgets, budget: Budget) -> Account:
    account = budgets.account(budget, NOW_MS)
    budgets.settle(budgets.reserve([account], estimate(0.1)), Decimal("0.5"))
    return account


def test_no_number_of_runs_makes_a_tenants_account_or_another_tenants_run_be_forgotten() -> None:
    budgets = Budgets(Estimator(), max_run_accounts=100)
    tenant = spent(budgets, Budget("tenant", "acme", Decimal(1), "month"))
    run = spent(budgets, Budget("run", "acme/r", Decimal(1), tenant="acme"))
    for number in range(1_000):
        spent(budgets, Budget("run", f"other/{number}", Decimal(1), tenant="other"))
    assert budgets.account(tenant.budget, NOW_MS) is tenant
    assert budgets.account(run.budget, NOW_MS) is run
    assert len(budgets) == 101


def test_an_account_that_spent_in_its_period_is_never_forgotten_and_makes_no_room() -> None:
    budgets = Budgets(Estimator(), max_period_accounts=3)
    first = [spent(budgets, Budget("tenant", name, Decimal(1), "hour")) for name in "abc"]
    with pytest.raises(BudgetsFull):
        budgets.account(Budget("tenant", "d", Decimal(1), "hour"), NOW_MS)
    assert [budgets.account(one.budget, NOW_MS) for one in first] == first
    later = budgets.account(Budget("tenant", "d", Decimal(1), "hour"), NOW_MS + HOUR_MS)
    assert (later.spent_usd, len(budgets)) == (0, 3)


def test_accounts_of_which_nothing_was_spent_make_room() -> None:
    budgets = Budgets(Estimator(), max_period_accounts=3)
    acme = spent(budgets, Budget("tenant", "acme", Decimal(1), "month"))
    for number in range(1_000):
        budgets.account(Budget("tenant", f"t{number}", Decimal(1), "month"), NOW_MS)
    assert budgets.account(acme.budget, NOW_MS) is acme


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=200))
def test_run_accounts_stay_within_their_bound_and_a_small_tenant_keeps_its_own(
    asked: list[tuple[str, int]],
) -> None:
    accounts: RunAccounts[Account] = RunAccounts(limit=8)
    account = Account(Budget("run", "small/r", Decimal(1), tenant="small"))
    accounts.of("small", "r", lambda: account)
    for tenant, number in asked:
        accounts.of(tenant, str(number), lambda: Account(Budget("run", "r", Decimal(1))))
        assert len(accounts) <= 8
    assert accounts.of("small", "r", lambda: pytest.fail("forgotten")) is account


# ---- estimates --------------------------------------------------------------------------------


def test_an_estimate_is_the_ninetieth_percentile_of_what_such_calls_cost() -> None:
    estimator = Estimator()
    for cents in range(1, 101):
        estimator.learn(request(), KIND, PRICES, Decimal(cents) / 100)
    assert estimator.estimate(request(), KIND, [PRICES]).usd == pytest.approx(0.90)


def test_an_estimate_grows_with_the_size_of_the_call() -> None:
    estimator = Estimator()
    embedder = Prices(Decimal(2))
    for _ in range(9):
        estimator.learn(request(embed=("x" * 4_000,)), KIND, embedder, Decimal("0.004"))
    twice = estimator.estimate(request(embed=("x" * 12_000,)), KIND, [embedder])
    assert twice.usd == pytest.approx(0.008, rel=0.01)


def test_without_history_a_call_is_expected_to_use_all_that_it_allows() -> None:
    unknown = Estimator().estimate(request(max_tokens=8_192), KIND, [PRICES])
    assert unknown.usd == unknown.worst_usd == pytest.approx((1_001 * 2 + 8_192 * 8) / 1e6)


def test_a_node_that_was_never_seen_is_expected_to_be_like_its_model() -> None:
    estimator = Estimator()
    for _ in range(9):
        estimator.learn(request(), KIND, PRICES, Decimal("0.02"))
    other = estimator.estimate(request(), ("writer", "report", "title"), [PRICES])
    assert other.usd == pytest.approx(0.02)


def test_the_dearest_of_the_prices_is_expected_and_an_unpriced_one_costs_nothing() -> None:
    estimator = Estimator()
    dear = estimator.estimate(request(), KIND, [Prices(), PRICES, Prices(Decimal(1))])
    assert dear.usd == estimator.estimate(request(), KIND, [PRICES]).usd
    assert estimator.estimate(request(), KIND, [Prices()]) is FREE


def test_as_many_tokens_as_a_call_demands_are_expected_of_its_answer() -> None:
    def demands(**body: Any) -> Estimate:
        body = {"messages": [{"role": "user", "content": "x" * 4_000}], **body}
        asked = request(messages=(), openai={"path": "chat/completions", "body": body})
        return Estimator().estimate(asked, KIND, [PRICES])

    long = demands(min_tokens=200_000)
    assert long.seen_usd == long.worst_usd == pytest.approx((1_001 * 2 + 200_000 * 8) / 1e6)
    assert demands(min_tokens=200_000, max_tokens=9) == demands(max_tokens=9)
    assert demands(min_tokens=5) == demands()

    endless = demands(ignore_eos=True)
    assert endless.seen_usd == endless.worst_usd == demands().worst_usd
    assert demands(ignore_eos=True, min_tokens=200_000) == long
    limited = demands(ignore_eos=True, max_tokens=50_000)
    assert limited.seen_usd == limited.worst_usd == demands(max_tokens=50_000).worst_usd
    assert demands(ignore_eos=False) == demands()


def test_the_worst_case_is_that_of_the_prices_at_which_a_long_answer_is_dearest() -> None:
    dear_input, dear_output = Prices(Decimal(10), Decimal(1)), Prices(Decimal(1), Decimal(20))
    asked = request(max_tokens=100_000)
    short, long = (Estimator().estimate(asked, KIND, [one]) for one in (dear_input, dear_output))
    assert short.seen_usd > long.seen_usd
    both = Estimator().estimate(asked, KIND, [dear_input, dear_output])
    assert (both.seen_usd, both.worst_usd) == (short.seen_usd, long.worst_usd)


def test_tokens_count_messages_documents_and_texts() -> None:
    passage = Document(id="P1", text="y" * 400)
    assert (
        request_content.tokens(request(documents=(passage,), embed=("z" * 800,))) == 1 + 5_200 // 4
    )


PARTS = [{"type": "text", "text": "a" * 40}, {"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "a" * 80}]}, (21, None)),
        ("chat/completions", {"messages": [{"content": PARTS}], "max_tokens": 7}, (1_011, 7)),
        ("chat/completions", {"messages": 1, "max_completion_tokens": 9}, (1, 9)),
        ("completions", {"prompt": ["a" * 40, "b" * 40], "max_tokens": "9"}, (21, None)),
        ("embeddings", {"input": "a" * 4}, (2, None)),
    ],
)
def test_a_body_of_openais_api_is_measured_like_our_own_fields(
    path: str, body: dict[str, Any], expected: tuple[int, int | None]
) -> None:
    came = request(messages=(), openai={"path": path, "body": body})
    assert (request_content.tokens(came), request_content.max_tokens(came)) == expected
    assert request_content.embeds(came) is (path == "embeddings")


# ---- which budgets ----------------------------------------------------------------------------

RULES = budget_rules.read(
    {
        "tenants": {"acme": {"usd": 100, "per": "day"}, "*": {"usd": "2.50"}},
        "pipelines": {"acme/report": {"usd": 9, "per": "hour"}, "report": {"usd": 1}},
    },
    {},
)


@pytest.mark.parametrize(
    ("tenant", "pipeline", "run_usd", "expected"),
    [
        ("acme", "report", "3", [("run", 3), ("pipeline", 9), ("tenant", 100)]),
        ("other", "report", None, [("pipeline", 1), ("tenant", Decimal("2.5"))]),
        ("acme", "other", None, [("tenant", 100)]),
    ],
)
def test_a_call_spends_from_its_runs_its_pipelines_and_its_tenants_budget(
    tenant: str, pipeline: str, run_usd: str | None, expected: list[tuple[str, Any]]
) -> None:
    who = Attribution(tenant=tenant, pipeline=pipeline, run_id="r1")
    given = None if run_usd is None else Decimal(run_usd)
    found = RULES.budgets_of(request(attribution=who), given)
    assert [(budget.level, budget.usd) for budget in found] == expected


def test_a_call_spends_from_the_budgets_of_its_labels_and_of_its_runs() -> None:
    rules = budget_rules.read(
        {
            "labels": {
                "team=search": {"usd": 5},
                "team=*": {"usd": 4},
                "acme/team=search": {"usd": 3, "per": "day"},
                "customer=a/b": {"usd": 2},
            }
        },
        {},
    )

    def found(
        tenant: str, labels: dict[str, str], inherited: dict[str, str]
    ) -> list[tuple[str, str, int]]:
        who = Attribution(tenant=tenant, labels=labels or None)
        budgets = rules.budgets_of(request(attribution=who), None, inherited)
        return [(one.level, one.name, int(one.usd)) for one in budgets]

    assert found("acme", {"team": "search", "x": "y"}, {}) == [("label", "acme/team=search", 3)]
    assert found("b", {"team": "search"}, {}) == [("label", "b/team=search", 5)]
    assert found("b", {"team": "other"}, {"customer": "a/b"}) == [
        ("label", "b/customer=a/b", 2),
        ("label", "b/team=other", 4),
    ]
    assert found("b", {}, {}) == []
    assert found("b", {"team": "search"}, {"team": "own"}) == [("label", "b/team=own", 4)]


def test_a_call_spends_from_the_budget_of_its_runs_pipeline_whatever_it_names() -> None:
    rules = budget_rules.read({"pipelines": {"report": {"usd": 1}, "other": {"usd": 2}}}, {})
    for named in ("other", None):
        who = Attribution(tenant="acme", pipeline=named, run_id="r1")
        found = rules.budgets_of(request(attribution=who), None, pipeline="report")
        assert [one.name for one in found] == ["acme/report"]


def test_budgets_of_different_tenants_are_not_one() -> None:
    names = {
        budget.name
        for tenant in ("a", "b")
        for budget in RULES.budgets_of(
            request(attribution=Attribution(tenant=tenant, pipeline="report", run_id="r")), None
        )
    }
    assert names == {"a", "b", "a/report", "b/report"}


def test_budgets_are_read_with_their_periods() -> None:
    assert RULES.tenants == {
        "acme": Allowance(Decimal(100), "day"),
        "*": Allowance(Decimal("2.50"), "month"),
    }
    assert budget_rules.read(None, {}) == BudgetRules()


@pytest.mark.parametrize(
    ("section", "field", "cure"),
    [
        ({"tenant": {}}, "budgets.tenant", "tenants"),
        ({"labels": {"team": {"usd": 1}}}, "budgets.labels.team", "team=search"),
        ({"unpriced": "maybe"}, "budgets.unpriced", "`refuse`"),
        ({"reserve": "none"}, "budgets.reserve", "`worst`"),
        ({"tenants": {"a": {"per": "day"}}}, "budgets.tenants.a.usd", "Set"),
        ({"tenants": {"a": {"usd": -1}}}, "budgets.tenants.a.usd", "US dollars"),
        ({"pipelines": {"p": {"usd": 1, "per": "week"}}}, "budgets.pipelines.p.per", "`day`"),
        ([], "budgets", "field: value"),
    ],
)
def test_a_mistake_in_budgets_is_refused_with_its_field_and_cure(
    section: Any, field: str, cure: str
) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        budget_rules.read(section, {})
    assert refused.value.fields["field"] == field
    assert cure in refused.value.fields["cure"]


def test_each_call_of_a_run_has_its_own_limit_of_the_runs_budget() -> None:
    budgets = Budgets(Estimator())
    run = [Budget("run", "r", Decimal(usd)) for usd in ("1", "10", "0.5")]
    account = budgets.account(run[0], NOW_MS)
    first = budgets.reserve([account], estimate(0.9))
    for other in run[1:]:  # of calls that arrive meanwhile
        assert budgets.account(other, NOW_MS) is account
    expected = estimate(0.6)
    answers = [budgets.ask([(account, one)], expected).answer for one in run]
    assert answers == [Answer.WAIT, Answer.GRANTED, Answer.REFUSED]
    budgets.settle(first, Decimal("0.9"))
    decision = budgets.ask([(account, run[0])], expected)
    assert (decision.answer, decision.budget) == (Answer.REFUSED, run[0])
    assert budgets.ask([(account, run[1])], expected).answer is Answer.GRANTED
