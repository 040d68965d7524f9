"""Patterns of schemas, run by RE2 in time linear in the text, whatever the pattern.

Patterns are written as in ECMA-262, except that RE2 has nothing that needs backtracking (`(?=`, `\\1`),
and no repetitions over 1,000.
"""

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from hocket.schemas.templates.budget import Meter, Refused

MAX_PATTERN_CHARS = 1_000
MAX_PROGRAM_BYTES = 1 << 17
MAX_PATTERNS_SIZE = 100_000
"""The most instructions that all patterns of a schema compile to: 0.1 s."""

FOLDED_CLASS = 70
"""What it takes to fold the cases of a class, in instructions."""

_CLASS = re.compile(r"\\[pPWDS]|\[\[?:?\^")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled", "_price", "size", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled
        self._price = compiled.programsize
        self.size = self._price
        if "(?" in text:  # where case does not matter, RE2 folds each class, even one it then drops
            self.size += FOLDED_CLASS * len(_CLASS.findall(text))

    def found_in(self, meter: Meter, text: str) -> bool:
        """Tell whether the pattern matches anywhere in a text."""
        meter.spend((len(text) * self._price >> 5) + 8)
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:  # an unpaired surrogate, which no pattern matches
            return False


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return a compiled pattern; raise Refused, saying why, if RE2 does not accept it."""
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


class Patterns:
    """The patterns of one schema: each is compiled once, and their total size is bounded."""

    def __init__(self, most: int = MAX_PATTERNS_SIZE) -> None:
        self.size = 0
        """The total number of instructions."""
        self._most = most
        self._known: dict[str, Pattern] = {}

    def pattern(self, text: str) -> Pattern:
        """Return a compiled pattern; raise Refused if RE2 does not accept it, or the bound is
        exceeded."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = compile_pattern(text)
            self.size += known.size
        if self.size > self._most:
            raise Refused(
                f"the patterns compile to more than {self._most:,} instructions",
                "Use fewer patterns, or shorter repetitions than `{1,900}`.",
            )
        return known


def _as_re2(found: "re.Match[str]") -> str:
    return found[0] if found[1] is None else rf"\x{{{found[1]}}}"


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
