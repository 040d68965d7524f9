"""Functions of SQLite over texts, in linear time.

SQLite's own `instr`, `replace` and `trim` compare again at every position: two values of a few megabytes
take hours, and nothing can stop it meanwhile. These functions give the same results. Those that may take
long call `check`, which raises once the query's time is up. Pure.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hocket.workers.sql import sqlite_patterns as patterns

MAX_VALUE_BYTES: Final = 4 * 1024 * 1024
FEW_CHARS: Final = 8
"""So few are left to Python's own `strip`, which compares each character with all of them."""
CHARS_AT_ONCE: Final = 50_000

Check = Callable[[], None]
Functions = dict[str, tuple[tuple[int, ...], Callable[..., Any]]]
"""By name: the numbers of arguments (-1 is any), and the function."""


def _matches_blobs() -> bool:
    """Tell whether SQLite was built so that LIKE and GLOB read blobs as text."""
    connection = sqlite3.connect(":memory:")
    try:
        return bool(connection.execute("SELECT x'61' LIKE 'a'").fetchone()[0])
    finally:
        connection.close()


MATCHES_BLOBS: Final = _matches_blobs()


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


def _trim(check: Check, left: bool, right: bool, value: Any, *chars: Any) -> str | None:
    if value is None or None in chars:
        return None
    text, given = as_text(value), frozenset(as_text(chars[0]) if chars else " ")
    if len(given) <= FEW_CHARS:
        few = "".join(given)
        text = text.lstrip(few) if left else text
        return text.rstrip(few) if right else text
    end = len(text)
    start = _run_length(check, text, given, range(end)) if left else 0
    if right:
        end -= _run_length(check, text, given, range(end - 1, start - 1, -1))
    return text[start:end]


def _run_length(check: Check, text: str, given: frozenset[str], places: range) -> int:
    """Return how many of the places, from the first on, have one of the given characters."""
    for count, place in enumerate(places):
        if text[place] not in given:
            return count
        if count % CHARS_AT_ONCE == CHARS_AT_ONCE - 1:
            check()
    return len(places)


def _like(check: Check, pattern: Any, value: Any, *escape: Any) -> bool | None:
    if _is_blob(pattern, value):
        return False
    written = _pattern(pattern)
    if None in escape:
        return None
    own = patterns.escape_of(as_text(escape[0])) if escape else ""
    if written is None or value is None:
        return None
    return patterns.matches(patterns.like(written, own), as_text(value), check, folds=True)


def _glob(check: Check, pattern: Any, value: Any) -> bool | None:
    if _is_blob(pattern, value):
        return False
    written = _pattern(pattern)
    if written is None or value is None:
        return None
    return patterns.matches(patterns.glob(written), as_text(value), check, folds=False)


def _pattern(pattern: Any) -> str | None:
    if pattern is None:
        return None
    written = as_text(pattern)
    patterns.check_length(written)
    return written


def _is_blob(pattern: Any, value: Any) -> bool:
    return not MATCHES_BLOBS and (isinstance(pattern, bytes) or isinstance(value, bytes))


def text_functions(check: Check) -> Functions:
    """Return the functions that replace those of SQLite on every connection."""
    return {
        "instr": ((2,), instr),
        "replace": ((3,), replace),
        "trim": ((-1,), partial(_trim, check, True, True)),
        "ltrim": ((-1,), partial(_trim, check, True, False)),
        "rtrim": ((-1,), partial(_trim, check, False, True)),
    }


def pattern_functions(check: Check) -> Functions:
    """Return the functions that LIKE and GLOB call."""
    return {"like": ((2, 3), partial(_like, check)), "glob": ((2,), partial(_glob, check))}
