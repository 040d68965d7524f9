"""Prices: exact, and honest about what nobody said."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.budgets.price import Cost, Prices, believable, cost, per_million, plain

money = st.decimals(min_value=0, max_value=10**9, places=18)
tokens = st.integers(min_value=0, max_value=2**63 - 1)


@given(money, money, money, money, tokens, tokens, tokens)
def test_a_cost_equals_the_sum_in_rational_numbers(
    input_price: Decimal,
    output_price: Decimal,
    cached_price: Decimal,
    request_price: Decimal,
    uncached: int,
    cached: int,
    output: int,
) -> None:
    prices = Prices(input_price, output_price, cached_price, request_price)
    booked = cost(
        prices, input_tokens=uncached + cached, output_tokens=output, cached_tokens=cached
    )
    expected = Fraction(request_price) + Fraction(1, 10**6) * (
        uncached * Fraction(input_price)
        + cached * Fraction(cached_price)
        + output * Fraction(output_price)
    )
    assert Fraction(booked.usd) == expected


def test_a_known_call_costs_what_the_price_list_says() -> None:
    prices = Prices(Decimal("0.15"), Decimal("0.60"), Decimal("0.075"))
    booked = cost(prices, input_tokens=1_000, output_tokens=17, cached_tokens=400)
    assert booked == Cost(Decimal("0.0001302"), priced=True)


def test_cached_input_costs_what_input_costs_where_nobody_said() -> None:
    prices = Prices(Decimal(2), Decimal(0))
    booked = cost(prices, input_tokens=500_000, output_tokens=0, cached_tokens=500_000)
    assert booked.usd == 1


def test_input_that_is_written_to_a_cache_has_a_price_of_its_own() -> None:
    prices = Prices(
        Decimal(3), Decimal(15), Decimal("0.30"), cache_write_usd_per_mtok=Decimal("3.75")
    )
    booked = cost(
        prices,
        input_tokens=1_000_000,
        output_tokens=0,
        cached_tokens=200_000,
        cache_write_tokens=400_000,
    )
    assert booked.usd == Decimal("2.76")  # 0.4 at 3, 0.2 at 0.30, 0.4 at 3.75
    plain = Prices(Decimal(3))
    written = cost(
        plain, input_tokens=1_000_000, output_tokens=0, cached_tokens=0, cache_write_tokens=2**40
    )
    assert written.usd == 3, "no more is written than there is, at the price of input"
    told_twice = cost(
        prices,
        input_tokens=1_000_000,
        output_tokens=0,
        cached_tokens=600_000,
        cache_write_tokens=800_000,
    )
    assert told_twice.usd == Decimal("1.68")  # 0.6 at 0.30, and the other 0.4 at 3.75


def test_an_unpriced_model_costs_nothing_and_says_so() -> None:
    assert cost(Prices(), input_tokens=9, output_tokens=9, cached_tokens=0) == Cost(
        Decimal(0), priced=False
    )


def test_a_price_of_zero_is_a_price() -> None:
    assert cost(Prices(Decimal(0)), input_tokens=9, output_tokens=0, cached_tokens=0).priced


def test_more_cached_than_input_tokens_is_billed_as_cached_input() -> None:
    prices = Prices(Decimal(10), None, Decimal(1))
    assert cost(prices, input_tokens=1_000_000, output_tokens=0, cached_tokens=2**40).usd == 1


@pytest.mark.parametrize(
    ("per_token", "expected"),
    [("1.5e-7", "0.15"), ("0.00000060", "0.6"), ("0", "0"), ("0.001", "1000")],
)
def test_a_price_per_token_is_read_exactly(per_token: str, expected: str) -> None:
    assert str(per_million(Decimal(per_token))) == expected


@pytest.mark.parametrize(
    ("written", "expected"), [("1E+3", "1000"), ("2.50", "2.5"), ("0E-9", "0")]
)
def test_amounts_are_written_without_exponent_and_trailing_zeros(
    written: str, expected: str
) -> None:
    assert str(plain(Decimal(written))) == expected


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ("1e9", True),
        ("1000000000.01", False),
        ("1e-18", True),
        ("1.0e-18", True),
        ("1e-19", False),
        ("-0.1", False),
        ("NaN", False),
        ("Infinity", False),
    ],
)
def test_a_price_is_believed_within_its_bounds(price: str, expected: bool) -> None:
    assert believable(Decimal(price)) is expected
