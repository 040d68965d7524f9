"""Patterns of schemas, run by RE2: in time that grows with the text alone, whatever the pattern.

Patterns are written as in ECMA-262, of which RE2 lacks what needs backtracking (`(?=`, `\\1`) and
repetitions over 1,000.
"""

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from hocket.schemas.templates.budget import Meter, Refused

MAX_PATTERN_CHARS = 1_000
MAX_PROGRAM_BYTES = 1 << 17

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)


class Pattern:
    """A pattern that is ready to search."""

    __slots__ = ("_compiled", "_price", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled
        self._price = compiled.programsize

    def found_in(self, meter: Meter, text: str) -> bool:
        """Tell whether it matches anywhere in a text."""
        meter.spend((len(text) * self._price >> 5) + 8)
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:  # half a surrogate pair, which no pattern means
            return False


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return a pattern; raise Refused for one that RE2 does not take, saying why."""
    if len(text) > MAX_PATTERN_CHARS:
        raise Refused(
            f"the pattern has {len(text):,} characters", f"Use up to {MAX_PATTERN_CHARS:,}."
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        return Pattern(text, re2.compile(_ESCAPE.sub(_as_re2, text), options=options))
    except (re2.error, ValueError) as error:
        raise Refused(
            f"{text[:100]!r} is not a pattern that runs in linear time ({_said(error)})",
            "Write it without look-around and back-references: github.com/google/re2/wiki/Syntax.",
        ) from None


def _as_re2(found: "re.Match[str]") -> str:
    return found[0] if found[1] is None else rf"\x{{{found[1]}}}"


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
