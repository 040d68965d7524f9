"""What an attempt charges besides its model calls."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, FloatOperation, Inexact, Rounded, Subnormal, localcontext

import pytest

from hocket.schemas.messages import Spend
from hocket.schemas.structs.results import spend_json
from hocket.workers.runtime.journal.errors import AttemptEnded
from hocket.workers.runtime.models.amounts import MONEY, price_of_time
from hocket.workers.runtime.models.charges import MAX_CHARGE_USD, Charged


def test_charges_are_added_to_what_model_calls_cost_and_shown_beside_them() -> None:
    attempt = Charged()
    assert attempt._with_charges(None) is None
    attempt.charge("0.02")
    attempt.charge(Decimal("0.01"))
    assert attempt._with_charges(None) == Spend(
        cost_usd=Decimal("0.03"), charged_usd=Decimal("0.03")
    )
    calls = Spend(calls=2, input_tokens=5, output_tokens=1, cost_usd=Decimal("0.5"))
    whole = attempt._with_charges(calls)
    assert whole == calls.model_copy(
        update={"cost_usd": Decimal("0.53"), "charged_usd": Decimal("0.03")}
    )


@pytest.mark.parametrize(
    "usd",
    [
        *("-1", "nan", "inf", "-inf", "much", Decimal("-0.01"), MAX_CHARGE_USD, True, False),
        *(-0.5, -1e-300, float("nan"), float("inf"), 1e300, 1_000_000.5),
    ],
)
def test_what_is_no_amount_is_refused_and_changes_nothing(usd: Decimal | str | int) -> None:
    attempt = Charged()
    attempt.charge(1)
    with pytest.raises(ValueError, match=r"USD|US dollars"):
        attempt.charge(usd)
    assert attempt._with_charges(None) == Spend(cost_usd=Decimal(1), charged_usd=Decimal(1))


def test_a_block_is_charged_as_far_as_it_has_gone_and_never_beyond_the_most() -> None:
    attempt, cost = Charged(), [Decimal(2)]
    attempt.charge(1)
    with attempt.charging(lambda: cost[0]):
        assert attempt._with_charges(None) == Spend(cost_usd=Decimal(3), charged_usd=Decimal(3))
        cost[0] = Decimal(4)
    assert attempt._with_charges(None) == Spend(cost_usd=Decimal(5), charged_usd=Decimal(5))
    most = Decimal(MAX_CHARGE_USD)
    with attempt.charging(lambda: most):
        attempt.charge(5)
    assert attempt._with_charges(None) == Spend(cost_usd=most, charged_usd=most)


@pytest.mark.parametrize("usd", ["1e-50", Decimal(1) / 3 / 10**20])
def test_an_amount_with_endless_places_can_be_reported(usd: Decimal) -> None:
    attempt = Charged()
    attempt.charge("0.25")
    attempt.charge(usd)
    with attempt.charging(lambda: Decimal(usd)):
        pass
    spent = attempt._with_charges(None)
    read = Spend.model_validate_json(bytes(spend_json(spent)))
    assert abs(read.charged_usd - Decimal("0.25") - 2 * Decimal(usd)) < Decimal("1e-25")
    alone = Charged()
    alone.charge(usd)
    Spend.model_validate_json(bytes(spend_json(alone._with_charges(None))))


class LikeNumpys(float):
    """A float whose text is none that a decimal has."""

    def __repr__(self) -> str:
        return f"float64({float.__repr__(self)})"


@pytest.mark.parametrize(
    ("usd", "charged"),
    [
        (0.1, "0.1"),
        (0.1 + 0.2, "0.300000001"),
        (1e-12, "0.000000001"),
        (0.0, "0"),
        (250.0, "250"),
        (LikeNumpys(0.07), "0.07"),
    ],
)
def test_a_float_is_charged_as_it_is_written_and_rounded_up_to_nine_places(
    usd: float, charged: str
) -> None:
    attempt = Charged()
    attempt.charge("0.25")
    attempt.charge(usd)
    spent = attempt._with_charges(None)
    assert spent is not None
    assert str(spent.charged_usd) == str(Decimal("0.25") + Decimal(charged))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("hasty_threads")
def test_no_charge_is_lost_beside_those_of_other_threads() -> None:
    attempt = Charged()

    def charge_often() -> None:
        for _ in range(10_000):
            attempt.charge("0.01")

    with ThreadPoolExecutor(8) as threads:
        for charging in [threads.submit(charge_often) for _ in range(8)]:
            charging.result()
    assert attempt._with_charges(None) == Spend(cost_usd=Decimal(800), charged_usd=Decimal(800))


def test_a_handler_that_has_ended_charges_nothing_more() -> None:
    attempt = Charged()
    attempt.charge("0.02")
    attempt._has_ended = lambda: True
    with pytest.raises(AttemptEnded):
        attempt.charge("5")
    assert attempt._with_charges(None) == Spend(
        cost_usd=Decimal("0.02"), charged_usd=Decimal("0.02")
    )


@pytest.fixture(params=["few digits", "traps"])
def careless_decimals(request: pytest.FixtureRequest) -> Iterator[None]:
    """A decimal context as a handler may have one."""
    with localcontext() as own:
        own.prec = 2
        if request.param == "traps":
            for signal in (Inexact, Rounded, Subnormal, FloatOperation):
                own.traps[signal] = True
        else:
            own.clear_traps()
        yield


@pytest.mark.usefixtures("careless_decimals")
def test_the_decimal_context_of_a_handler_changes_no_amount() -> None:
    attempt, price = Charged(), Decimal("0.123456789")
    attempt.charge("123.456")
    attempt.charge("0.001")
    with attempt.charging(lambda: price_of_time(1_234.4, price)):
        pass
    cost = MONEY.fma(price, Decimal("1.234"), Decimal("123.457"))
    calls = Spend(calls=1, cost_usd=Decimal("1.2345"))
    spent = attempt._with_charges(calls)
    assert spent is not None
    assert (str(spent.charged_usd), str(spent.cost_usd)) == (str(cost), "124.843845677626")
    with pytest.raises(ValueError, match=r"USD|US dollars"):
        attempt.charge("nan")
