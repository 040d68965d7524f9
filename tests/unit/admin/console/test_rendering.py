"""Figures as people read them, and documents as pages show them."""

from decimal import Decimal

import pytest

from hocket.admin.console.assets import NAMES, assets
from hocket.admin.console.rendering import MAX_SHOWN_CHARS, duration, pretty, usd, without_nulls


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "\N{EN DASH}"),
        (0.04, "0.0 ms"),
        (38.2, "38 ms"),
        (1_240, "1.24 s"),
        (-1_240, "-1.24 s"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
    ],
)
def test_a_duration_is_said_with_the_unit_that_fits(ms: float | None, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (Decimal(0), "$0"),
        (Decimal("0.0000012"), "$0.0000012"),
        (Decimal("0.05"), "$0.05"),
        (Decimal("1234.5"), "$1,234.50"),
        (None, "\N{EN DASH}"),
    ],
)
def test_dollars_have_the_digits_that_tell_something(amount: Decimal | None, said: str) -> None:
    assert usd(amount) == said


def test_a_value_too_long_for_a_page_says_how_much_is_missing() -> None:
    shown = pretty("x" * (MAX_SHOWN_CHARS + 98))

    assert len(shown) < MAX_SHOWN_CHARS + 100
    assert shown.endswith("100 more characters")


def test_fields_that_say_nothing_are_left_out() -> None:
    assert without_nulls({"a": None, "b": {"c": None, "d": 0}}) == {"b": {"d": 0}}


def test_all_scripts_together_stay_small() -> None:
    import gzip

    scripts = b"".join(asset.body for name, asset in assets().items() if name.endswith(".js"))

    assert len(gzip.compress(scripts)) <= 70_000
    assert set(assets()) == set(NAMES)
