"""Functions of SQLite over texts, in linear time.

SQLite's own `instr`, `replace` and `trim` compare again at every position: two values of a few megabytes
take hours, and nothing can stop it meanwhile. These functions give the same results. Pure.
"""

from collections.abc import Callable
from typing import Any, Final

MAX_VALUE_BYTES: Final = 4 * 1024 * 1024


def as_text(value: Any) -> str:
    """Return a value as SQLite casts it to TEXT."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        digits, exponent, power = f"{value:.15g}".partition("e")
        if digits.lstrip("-") == "inf":
            return digits.replace("inf", "Inf")
        whole = digits if "." in digits else f"{digits}.0"
        return whole + exponent + power
    return str(value)


def instr(value: Any, part: Any) -> int | None:
    """Return where `part` begins in a value, counted from 1; 0 if it does not occur."""
    if value is None or part is None:
        return None
    if isinstance(value, bytes) and isinstance(part, bytes):
        return value.find(part) + 1
    return as_text(value).find(as_text(part)) + 1


def replace(value: Any, part: Any, other: Any) -> Any:
    """Return a value with every `part` replaced by `other`."""
    if value is None or part is None or other is None:
        return None
    text, old, new = as_text(value), as_text(part), as_text(other)
    if not old:
        return text
    grown = text.count(old) * (len(new) - len(old))
    if (
        len(text) + grown > MAX_VALUE_BYTES
    ):  # SQLite would refuse the value, but only once it is made
        raise OverflowError(f"the text would have more than {MAX_VALUE_BYTES:,} characters")
    return text.replace(old, new)


def _trimmed(*, left: bool, right: bool) -> Callable[..., str | None]:
    def trim(value: Any, *chars: Any) -> str | None:
        if value is None or None in chars:
            return None
        text, given = as_text(value), frozenset(as_text(chars[0]) if chars else " ")
        start, end = 0, len(text)
        while left and start < end and text[start] in given:
            start += 1
        while right and end > start and text[end - 1] in given:
            end -= 1
        return text[start:end]

    return trim


FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "instr": (2, instr),
    "replace": (3, replace),
    "trim": (-1, _trimmed(left=True, right=True)),
    "ltrim": (-1, _trimmed(left=True, right=False)),
    "rtrim": (-1, _trimmed(left=False, right=True)),
}
"""By name: the number of arguments, and the function."""
