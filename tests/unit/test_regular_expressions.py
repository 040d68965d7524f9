"""Regular expressions match the same with each Python from 3.11 on.

Before 3.11.5 a group with a possessive quantifier that tries more than one way may go on behind what it
has read (issue 106052 of github.com/python/cpython).
"""

import importlib
import pkgutil
import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from typing import Any

import pytest

import hocket


def _possessive_groups(part: Any) -> Iterator[Any]:
    """Yield what is repeated possessively, or atomic, and more than one character."""
    if isinstance(part, (list, tuple)):
        for inner in part:
            yield from _possessive_groups(inner)
    elif isinstance(part, parser.SubPattern):
        for op, args in part:
            if op is parser.ATOMIC_GROUP or (
                op is parser.POSSESSIVE_REPEAT and not _is_character(args[2])
            ):
                yield args
            yield from _possessive_groups(args)


def _is_character(repeated: Any) -> bool:
    return len(repeated) == 1 and repeated[0][0] in _CHARACTERS


_CHARACTERS = (parser.IN, parser.LITERAL, parser.NOT_LITERAL, parser.ANY)


def _found(expression: str | bytes) -> bool:
    return bool(list(_possessive_groups(parser.parse(expression))))


@pytest.mark.parametrize(
    "expression", ["(a|b)++", "(?:ab|c)*+d", "x(?:y(?:ab?)?+)", "(?>a|b)", rb"(?:ab){2,3}+"]
)
def test_possessive_groups_are_found(expression: str | bytes) -> None:
    assert _found(expression)


@pytest.mark.parametrize("expression", ["a++", r"[^\\]*+(?:b[a-z]?+)*", r"\d++(?:\.\d++)?"])
def test_possessive_characters_are_none(expression: str) -> None:
    assert not _found(expression)


def test_no_expression_has_a_possessive_group() -> None:
    patterns = {
        f"{info.name}.{name}": value
        for info in pkgutil.walk_packages(hocket.__path__, "hocket.")
        if not info.name.endswith("__main__")
        for name, value in vars(importlib.import_module(info.name)).items()
        if isinstance(value, re.Pattern)
    }
    assert len(patterns) > 100
    assert not [name for name, value in patterns.items() if _found(value.pattern)]
