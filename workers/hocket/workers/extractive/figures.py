"""Figures in text, and whether a figure states a value. Pure.

Every digit of a text belongs to a figure (`3,695.0`, `12 %`, `-4`, `2.5 million`) or to a code (`Tc97`,
`4f14`, `H2O`). A figure states a value if it equals the value, or the value rounded (half up or half to
even) to the written decimals with at least two significant digits; a percentage may also represent a
share (`12 %` for 0.12).
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

MIN_SIGNIFICANT_DIGITS: Final = 2
MAX_DIGITS: Final = 60
"""Longer runs of digits are compared as codes."""
_MAX_EXPONENT_CHARS: Final = 8
"""So are figures with a longer exponent, including its `e`; `int` refuses one of thousands of digits."""

_SCALES: Final = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_TOKEN: Final = re.compile(
    r"""
    (?P<code>(?<![^\W\d_])[^\W\d_]+\d\w*)
  | (?P<sign>(?<![\w.)\]])[-\u2212])?
    (?P<whole>\d{1,3}(?:[,'\u2019\u202f\u00a0]\d{3}){1,20}(?!\d)|\d+)
    (?P<fraction>\.\d+)?
    (?P<exponent>[eE][+-]?\d+(?!\w))?
    (?P<percent>\s?%|\sper\s?cent\b)?
    (?:\s(?P<scale>thousand|million|billion|trillion)\b)?
    """,
    re.VERBOSE,
)
_ENOUGH: Final = Context(prec=4 * MAX_DIGITS, traps=[InvalidOperation])
"""Enough digits to compare any two figures; Python's default of 28 would round them."""
_SEPARATORS: Final = str.maketrans("", "", ",'\u2019\u202f\u00a0")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or a code (`value` is None) and its place. `places` counts its written decimals,
    including its scale: 2.5 million has -5."""

    text: str
    start: int
    end: int
    value: Decimal | None
    places: int = 0
    percent: bool = False


class Evidence:
    """The figures of texts and the numbers of cells, of which each is found at once, however many there
    are."""

    def __init__(self, texts: Iterable[Figure], cells: Iterable[Decimal] = ()) -> None:
        found = list(texts)
        self._texts = frozenset(figure.text for figure in found)
        self._values = frozenset(figure.value for figure in found if figure.value is not None)
        self._cells = sorted(set(cells))

    def has(self, figure: Figure) -> bool:
        """Tell whether a figure states the number of a cell, or is among the figures of the texts, there
        without rounding."""
        if figure.value is None:
            return figure.text in self._texts
        return figure.value in self._values or any(
            says(figure, value) for value in self._near(figure, figure.value)
        )

    def _near(self, figure: Figure, stated: Decimal) -> Iterator[Decimal]:
        """Yield the numbers that rounding may take to a figure: no more than half a step from it."""
        half = Decimal((0, (5,), -figure.places - 1))
        if not _rounds(stated, figure.places):
            half = Decimal(0)
        for scale in (0, -2) if figure.percent else (0,):
            least = _ENOUGH.scaleb(_ENOUGH.subtract(stated, half), scale)
            most = _ENOUGH.scaleb(_ENOUGH.add(stated, half), scale)
            yield from self._cells[
                bisect_left(self._cells, least) : bisect_right(self._cells, most)
            ]


def figures(text: str) -> list[Figure]:
    """Return all figures and codes of a text."""
    return [_figure(match) for match in _TOKEN.finditer(text)]


def number(value: Any) -> Decimal | None:
    """Return a cell's number, even if it is written as text; None if it is not a number."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if isinstance(value, int | float):
        found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return found if found.is_finite() else None
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+(\.\d+)?([eE][+-]?\d{1,3})?\s*", value):
        try:
            return Decimal(value.strip())
        except InvalidOperation:
            return None
    return None


def written(value: Decimal) -> str:
    """Return a number as text: plain digits without meaningless zeros."""
    plain = f"{value:f}"
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"


def says(figure: Figure, value: Decimal) -> bool:
    """Tell whether a figure states a value, exactly or rounded to the decimals that are written."""
    if figure.value is None:
        return False
    if _states(figure.value, figure.places, value):
        return True
    return figure.percent and _states(figure.value, figure.places, _ENOUGH.scaleb(value, 2))


def _states(stated: Decimal, places: int, value: Decimal) -> bool:
    if stated == value:
        return True
    if not _rounds(stated, places):
        return False
    if abs(value.adjusted()) > MAX_DIGITS:
        return False
    step = Decimal((0, (1,), -places))
    return any(
        stated == value.quantize(step, rounding, _ENOUGH)
        for rounding in (ROUND_HALF_UP, ROUND_HALF_EVEN)
    )


def _rounds(stated: Decimal, places: int) -> bool:
    """Tell whether a figure has enough digits to state what it does not equal."""
    return not stated.is_zero() and stated.adjusted() + places + 1 >= MIN_SIGNIFICANT_DIGITS


def _figure(match: re.Match[str]) -> Figure:
    text, start, end = match[0], match.start(), match.end()
    written_exponent = match["exponent"] or "e0"
    if (
        match["code"]
        or len(match["whole"]) > MAX_DIGITS
        or len(written_exponent) > _MAX_EXPONENT_CHARS
    ):
        return Figure(text, start, end, None)
    digits = match["whole"].translate(_SEPARATORS) + (match["fraction"] or "")
    exponent = int(written_exponent[1:])
    exponent += _SCALES.get(match["scale"] or "", 0)
    if abs(exponent) > MAX_DIGITS or len(digits) > MAX_DIGITS:
        return Figure(text, start, end, None)
    value = _ENOUGH.scaleb(Decimal(digits), exponent)
    places = len(match["fraction"] or ".") - 1 - exponent
    percent = match["percent"] is not None
    return Figure(
        text, start, end, value.copy_negate() if match["sign"] else value, places, percent
    )
