"""Which figure says which value; expected values are written by hand."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.workers.extractive.figures import Evidence, figures, number, says, written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3,695", "3695"),
        ("1'234'567.5", "1234567.5"),
        ("-108.5", "-108.5"),
        ("\u2212108.5", "-108.5"),
        ("12 %", "12"),
        ("2.5 million", "2500000"),
        ("1e-5", "0.00001"),
        ("007", "7"),
    ],
)
def test_a_figure_is_read_however_it_is_written(text: str, value: str) -> None:
    (figure,) = figures(f"about {text} of it")
    assert figure.value == Decimal(value)


def test_a_range_and_a_code_are_not_negative() -> None:
    assert [(f.text, f.value) for f in figures("from 3-5, Tc-97, 4f14 and H2O")] == [
        ("3", 3),
        ("5", 5),
        ("97", 97),
        ("4", 4),
        ("f14", None),
        ("H2O", None),
    ]


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("22.61", "22.61", True),
        ("22.6", "22.61", True),
        ("23", "22.61", True),
        ("22.62", "22.61", False),
        ("20", "22.61", False),
        ("3,700", "3695", False),
        ("0.1", "0.12", False),
        ("2.5", "2.45", True),
        ("2.4", "2.45", True),
        ("12%", "0.12", True),
        ("12%", "12", True),
        ("12", "0.12", False),
        ("-5.0", "5", False),
        ("2.07 thousand", "2070.02", True),
        ("2.08 thousand", "2070.02", False),
        ("0", "0.004", False),
    ],
)
def test_rounding_is_allowed_as_far_as_declared(text: str, value: str, expected: bool) -> None:
    (figure,) = figures(text)
    assert says(figure, Decimal(value)) is expected


@pytest.mark.parametrize("exponent", ["9" * 5_000, "-" + "9" * 5_000, "0" * 5_000])
def test_a_figure_with_an_endless_exponent_is_a_code(exponent: str) -> None:
    (figure,) = figures(f"1e{exponent}")
    assert figure.value is None


STATED = st.decimals(-10, 10, places=2) | st.decimals(-10, 10, places=3) | st.integers(-30, 30)
UNITS = st.sampled_from(["", "%", " thousand", "e-1"])


@given(st.builds("{}{}".format, STATED, UNITS), st.lists(STATED.map(Decimal), max_size=20))
def test_evidence_has_what_one_of_its_numbers_says(text: str, cells: list[Decimal]) -> None:
    (figure,) = figures(text)
    assert Evidence([], cells).has(figure) is any(says(figure, cell) for cell in cells)


def test_evidence_of_texts_is_not_rounded() -> None:
    evidence = Evidence(figures("12.44 m, Tc97"))
    said = {
        text: evidence.has(figures(text)[0]) for text in ("12.44", "12.440", "12.4", "Tc97", "97")
    }
    assert said == {"12.44": True, "12.440": True, "12.4": False, "Tc97": True, "97": False}


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12
    )
)
def test_what_is_written_says_its_value(value: Decimal) -> None:
    (figure,) = figures(written(value))
    assert figure.value == value
    assert says(figure, value)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (True, None),
        (float("nan"), None),
        ("12.50", Decimal("12.50")),
        ("1783 or so", None),
        (0.1, Decimal("0.1")),
    ],
)
def test_only_numbers_are_numbers(cell: object, expected: Decimal | None) -> None:
    assert number(cell) == expected
