"""LIKE and GLOB as SQLite runs them, but in steps between which a query can be stopped.

SQLite's own take the bytes of a text times those of a pattern, and nothing can stop them meanwhile. A
pattern is split at its `%` (`*`): what is left are parts of a fixed length, so the first place where a
part fits is always a right one, and no place is tried twice for the same part. Only the letters of ASCII
are folded; a text ends at its first U+0000. Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_PATTERN_BYTES: Final = 250
STEPS_AT_ONCE: Final = 200_000
"""Characters times those of a part that are compared between two checks: a few milliseconds."""
PATTERNS_KEPT: Final = 256

_ANY: Final = "."
_UNKNOWN: Final = "\ufffd"
_READ_AS_UNKNOWN: Final = ("\ufffe", "\uffff")


class PatternRefused(Exception):
    """SQLite would refuse this pattern as well."""


@dataclass(frozen=True, slots=True)
class Part:
    """Characters of a fixed number: `literal` if they are given, or otherwise what `fits` finds."""

    length: int
    literal: str | None
    fits: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Marks:
    """The characters with a meaning, empty where there is none."""

    all: str
    one: str
    escape: str
    set: str


def matches(
    parts: tuple[Part, ...] | None, text: str, check: Callable[[], None], *, folds: bool
) -> bool:
    """Tell whether a text fits a pattern; `check` is called now and then, and may raise."""
    if parts is None:
        return False
    text = _folded(text) if folds else _known(text)
    first, last = parts[0], parts[-1]
    end = len(text) - last.length
    if len(parts) == 1:
        return end == 0 and _is_at(first, text, 0)
    if first.length > end or not _is_at(first, text, 0) or not _is_at(last, text, end):
        return False
    at = first.length
    for part in parts[1:-1]:
        at = _found(part, text, at, end, check)
        if at < 0:
            return False
        at += part.length
    return True


def escape_of(text: str) -> str:
    """Return the character that follows ESCAPE; raise PatternRefused if it is not one."""
    char = _known(text)
    if len(char) != 1:
        raise PatternRefused("what follows ESCAPE must be a single character")
    return char


@lru_cache(PATTERNS_KEPT)
def like(pattern: str, escape: str) -> tuple[Part, ...] | None:
    """Return the parts of a pattern of LIKE; None if no text fits. `escape` may be empty."""
    marks = _Marks("%" if escape != "%" else "", "_" if escape != "_" else "", escape, "")
    return _parts(pattern, marks, folds=True)


@lru_cache(PATTERNS_KEPT)
def glob(pattern: str) -> tuple[Part, ...] | None:
    """Return the parts of a pattern of GLOB; None if no text fits."""
    return _parts(pattern, _Marks("*", "?", "", "["), folds=False)


def check_length(pattern: str) -> None:
    """Raise PatternRefused if a pattern is too long."""
    if len(pattern.encode()) > MAX_PATTERN_BYTES:
        raise PatternRefused(f"a pattern of LIKE or GLOB has more than {MAX_PATTERN_BYTES} bytes")


def _parts(pattern: str, marks: _Marks, *, folds: bool) -> tuple[Part, ...] | None:
    text = _known(pattern)
    parts: list[list[str]] = [[]]
    """Each character as a pattern of `re`; one that stands for itself is escaped."""
    at = 0
    while at < len(text):
        char, at = text[at], at + 1
        if char == marks.all:
            parts.append([])
        elif char == marks.escape:
            if at == len(text):
                return None
            parts[-1].append(_itself(text[at], folds=folds))
            at += 1
        elif char == marks.set:
            read = _set(text, at)
            if read is None:
                return None
            fits, at = read
            parts[-1].append(fits)
        else:
            parts[-1].append(_ANY if char == marks.one else _itself(char, folds=folds))
    return tuple(map(_part, parts))


def _part(chars: list[str]) -> Part:
    literal = None
    if all(len(char) == 1 or char[0] == "\\" for char in chars) and _ANY not in chars:
        literal = "".join(char[-1] for char in chars)
    return Part(len(chars), literal, re.compile("".join(chars), re.DOTALL))


def _itself(char: str, *, folds: bool) -> str:
    return re.escape(_folded(char) if folds else char)


def _set(text: str, at: int) -> tuple[str, int] | None:
    """Read the set `[...]` whose content begins at `at`; return what fits it, for `re`, and where the
    text goes on. None if the set has no end."""
    negated = text.startswith("^", at)
    at += negated
    chars, before = [], ""
    if text.startswith("]", at):
        chars.append(re.escape("]"))
        at += 1
    while at < len(text) and text[at] != "]":
        if before and _continues_range(text, at):
            if before <= text[at + 1]:
                chars.append(f"{re.escape(before)}-{re.escape(text[at + 1])}")
            before, at = "", at + 2
        else:
            before = text[at]
            chars.append(re.escape(before))
            at += 1
    if at >= len(text):
        return None
    if not chars:
        return (_ANY if negated else "(?!)."), at + 1
    return f"[{'^' if negated else ''}{''.join(chars)}]", at + 1


def _continues_range(text: str, at: int) -> bool:
    """Return whether `-` and the last character of a range are at a place in a set."""
    return text[at] == "-" and at + 1 < len(text) and text[at + 1] != "]"


def _is_at(part: Part, text: str, at: int) -> bool:
    return part.fits.match(text, at) is not None


def _found(part: Part, text: str, at: int, end: int, check: Callable[[], None]) -> int:
    """Return the first place from `at` where a part fits before `end`; -1 if there is none."""
    if part.literal is not None:
        return text.find(part.literal, at, end)
    width = max(1, STEPS_AT_ONCE // part.length)
    for begin in range(at, end - part.length + 1, width):
        check()
        found = part.fits.search(text, begin, min(begin + width - 1 + part.length, end))
        if found is not None:
            return found.start()
    return -1


def _folded(text: str) -> str:
    return _known(text.lower() if text.isascii() else text.encode().lower().decode())


def _known(text: str) -> str:
    """Return a text as SQLite reads it, up to U+0000."""
    text = text.partition("\0")[0]
    if not text.isascii():
        for char in _READ_AS_UNKNOWN:
            text = text.replace(char, _UNKNOWN)
    return text
