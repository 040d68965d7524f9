"""Figures in text, and whether a figure states a value. Pure.

Every digit of a text belongs to a figure (`3,695.0`, `12 %`, `-4`, `2.5 million`) or to a code (`Tc97`,
`4f14`, `H2O`). A figure states a value if it equals the value, or the value rounded (half up or half to
even) to the written decimals with at least two significant digits; a percentage may also represent a
share (`12 %` for 0.12).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

MIN_SIGNIFICANT_DIGITS: Final = 2
MAX_DIGITS: Final = 60
"""Longer runs of digits are compared as codes."""

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


def says_in(figure: Figure, evidence: Iterable[Figure]) -> bool:
    """Tell whether a figure or code is among those of a text, without rounding."""
    if figure.value is None:
        return any(figure.text == other.text for other in evidence)
    return any(figure.value == other.value for other in evidence if other.value is not None)


def _states(stated: Decimal, places: int, value: Decimal) -> bool:
    if stated == value:
        return True
    if stated.is_zero() or _significant(stated, places) < MIN_SIGNIFICANT_DIGITS:
        return False
    if abs(value.adjusted()) > MAX_DIGITS:
        return False
    step = Decimal((0, (1,), -places))
    return any(
        stated == value.quantize(step, rounding, _ENOUGH)
        for rounding in (ROUND_HALF_UP, ROUND_HALF_EVEN)
    )


def _significant(stated: Decimal, places: int) -> int:
    return stated.adjusted() + places + 1


def _figure(match: re.Match[str]) -> Figure:
    text, start, end = match[0], match.start(), match.end()
    if match["code"] or len(match["whole"]) > MAX_DIGITS:
        return Figure(text, start, end, None)
    digits = match["whole"].translate(_SEPARATORS) + (match["fraction"] or "")
    exponent = int((match["exponent"] or "e0")[1:])
    exponent += _SCALES.get(match["scale"] or "", 0)
    if abs(exponent) > MAX_DIGITS or len(digits) > MAX_DIGITS:
        return Figure(text, start, end, None)
    value = _ENOUGH.scaleb(Decimal(digits), exponent)
    places = len(match["fraction"] or ".") - 1 - exponent
    percent = match["percent"] is not None
    return Figure(
        text, start, end, value.copy_negate() if match["sign"] else value, places, percent
    )
