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
    of_this_kind = estimator.now(long, seen_usd=0.06, worst_usd=9.0).usd
    assert of_this_kind > 1, "it is known of this kind"


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


# ---- calls of one kind whose limits differ ----------------------------------------------------

DEAR = Prices(Decimal(1_000), Decimal(10_000))


def short_and_long(long: int) -> Estimator:
    """Return what is known after 30 calls at 0.60 USD, and of `long` more at 100 USD, of one kind."""
    estimator = Estimator()
    for _ in range(30):
        estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal("0.6"))
    for _ in range(long):
        estimator.learn(of("a", 10_000), UNNAMED, DEAR, Decimal(100))
    return estimator


def granted(estimator: Estimator, call: CallRequest, limit_usd: str) -> int:
    """Return how many calls go side by side within a limit."""
    budgets = Budgets(estimator)
    account = budgets.account(Budget("tenant", "a", Decimal(limit_usd), "day"), NOW_MS)
    count = 0
    while count < 100:
        estimate = estimator.estimate(call, UNNAMED, [DEAR])
        if budgets.ask([(account, account.budget)], estimate).answer is not Answer.GRANTED:
            break
        budgets.reserve([account], estimate)
        count += 1
    return count


@pytest.mark.parametrize("long", [0, 1, 10, 100])
def test_calls_go_side_by_side_if_their_worst_cases_fit_whatever_others_of_their_kind_cost(
    long: int,
) -> None:
    estimator = short_and_long(long)
    worst_usd = estimator.estimate(of("a", 60), UNNAMED, [DEAR]).worst_usd
    assert worst_usd == pytest.approx(0.605)
    assert granted(estimator, of("a", 60), "20") >= int(20 / worst_usd)
    assert granted(estimator, of("a", 60), "0.606") == 1, "a single one is not refused either"


def test_a_long_call_is_still_expected_to_be_as_dear_as_long_ones_were() -> None:
    estimator = short_and_long(10)
    estimate = estimator.estimate(of("a", 10_000), UNNAMED, [DEAR])
    assert estimate.usd > 90
    assert granted(estimator, of("a", 10_000), "20") == 0


def test_more_is_expected_than_the_worst_cases_of_calls_that_have_cost_more_than_theirs() -> None:
    """They had linked images, for example, whose size nobody knows before."""
    estimator = Estimator()
    for _ in range(30):
        estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal("3"))
    estimate = estimator.estimate(of("a", 60), UNNAMED, [DEAR])
    assert (estimate.usd, estimate.worst_usd) == (pytest.approx(3), pytest.approx(0.605))
    assert granted(estimator, of("a", 60), "20") <= 6


def dear_images(times: float, calls: int = 120) -> Estimator:
    """Return what is known after calls that cost so many times their worst case, 0.605 USD."""
    estimator = Estimator()
    for _ in range(calls):
        estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal(f"{0.605 * times:.4f}"))
    return estimator


def restored(earlier: Estimator, *, former: bool = False) -> Estimator:
    """Return what a starting gateway knows; a `former` release kept no worst cases."""
    kind = cost_kind(of("a", 60), UNNAMED)
    estimator, kept = Estimator(), earlier.kept(kind)
    estimator.restore(kind, {"ratios": kept["ratios"]} if former else kept)
    return estimator


@pytest.mark.parametrize("long", [1, 10, 100])
def test_what_an_earlier_gateway_learned_of_worst_cases_is_known_after_a_restart(long: int) -> None:
    estimator = restored(short_and_long(long))
    assert granted(estimator, of("a", 60), "20") > 30


@pytest.mark.parametrize("long", [1, 10, 100])
def test_what_a_former_release_kept_lets_one_call_through_and_more_once_enough_kept_to_worst_cases(
    long: int,
) -> None:
    estimator = restored(short_and_long(long), former=True)
    for _ in range(20):
        assert 1 <= granted(estimator, of("a", 60), "20") < 12
        estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal("0.6"))
    assert granted(estimator, of("a", 60), "20") > 30


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("texts", [0, 1, 5, 19])
@pytest.mark.parametrize("times", [2, 5, 10])
def test_cheap_calls_after_a_restart_erase_nothing_of_calls_that_exceed_their_worst_cases(
    times: int, texts: int, former: bool
) -> None:
    estimator = restored(dear_images(times), former=former)
    for _ in range(texts):
        estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal("0.6"))
    assert 1 <= granted(estimator, of("a", 60), "20") <= 20 / (0.605 * times) + 1


def test_images_restored_and_one_text_call_learned_let_six_calls_through() -> None:
    estimator = restored(dear_images(3 / 0.605))
    estimator.learn(of("a", 60), UNNAMED, DEAR, Decimal("0.6"))
    assert 1 <= granted(estimator, of("a", 60), "20") <= 6


def test_a_few_calls_of_a_kind_that_was_never_seen_before_tell_at_once_how_they_keep_to_limits() -> (
    None
):
    estimator = restored(Estimator())
    for usd in ("0.6", "100"):
        limit = 60 if usd == "0.6" else 10_000
        estimator.learn(of("a", limit), UNNAMED, DEAR, Decimal(usd))
    assert granted(estimator, of("a", 60), "20") > 30
