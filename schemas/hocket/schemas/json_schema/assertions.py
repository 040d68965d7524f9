"""Keywords that check a value itself: its type, its size. Messages are worded as in `jsonschema`; a
check that reads a whole text or list is charged for it."""

import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.nodes import Check, Keyword, Reader
from hocket.schemas.templates.budget import Meter
from hocket.schemas.templates.values import hashed

DECIMAL_OPERATIONS = 30
"""Operations charged for dividing two numbers as decimals."""
_DECIMALS = Context(prec=60, traps=[])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list | tuple),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": is_number,
    "object": lambda value: isinstance(value, Mapping),
    "string": lambda value: isinstance(value, str),
}


def canonical(meter: Meter, value: Any) -> Any:
    """Return a form that is equal for values that are equal in JSON: `1` and `1.0`, but not `1` and
    `true`."""
    meter.spend(8)
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, str):
        meter.read(len(value))
        return value
    if isinstance(value, Mapping):
        meter.make(80 * len(value))
        meter.spend(20 + 4 * len(value))
        return frozenset((key, canonical(meter, part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        meter.make(60 + 8 * len(value))
        meter.spend(20)
        return ("list", *(canonical(meter, part) for part in value))
    if isinstance(value, int):
        meter.read(value.bit_length() >> 3)
    return hashed(value)


# ---- any value ------------------------------------------------------------------------------


def _type(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    names = [given] if isinstance(given, str) else list(given)
    tests = [_TYPES[name] for name in names]
    said = ", ".join(repr(name) for name in names)
    first = tests[0]

    def one(meter: Meter, value: Any) -> Fault | None:
        if first(value):
            return None
        return Fault(lambda: f"{shown(value)} is not of type {said}")

    def several(meter: Meter, value: Any) -> Fault | None:
        if any(test(value) for test in tests):
            return None
        return Fault(lambda: f"{shown(value)} is not of type {said}")

    return one if len(tests) == 1 else several


def _enum(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    known = {canonical(Meter(), value) for value in given}

    def check(meter: Meter, value: Any) -> Fault | None:
        if canonical(meter, value) in known:
            return None
        return Fault(lambda: f"{shown(value)} is not one of {shown(given)}")

    return check


def _const(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    known = canonical(Meter(), given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if canonical(meter, value) == known:
            return None
        return Fault(lambda: f"{shown(given)} was expected")

    return check


# ---- numbers --------------------------------------------------------------------------------


def _bound(breaks: Callable[[Any, Any], bool], says: str) -> Keyword:
    def keyword(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
        def check(meter: Meter, value: Any) -> Fault | None:
            if is_number(value) and breaks(value, given):
                return Fault(lambda: says.format(shown(value), shown(given)))
            return None

        return check

    return keyword


def _multiple_of(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if is_number(value) and not _is_multiple(meter, value, given):
            return Fault(lambda: f"{shown(value)} is not a multiple of {shown(given)}")
        return None

    return check


def _is_multiple(meter: Meter, value: Any, of: Any) -> bool:
    """Tell whether a number is a multiple of another, as decimals: 19.99 is one of 0.01."""
    if not isinstance(of, float):
        if isinstance(value, float):
            return value.is_integer() and int(value) % of == 0
        return bool(value % of == 0)
    try:
        quotient = value / of
        is_whole = round(quotient) == quotient
    except OverflowError:
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return (Fraction(value) / Fraction(of)).denominator == 1
    if is_whole:
        return True
    meter.spend(DECIMAL_OPERATIONS)
    return bool(_DECIMALS.remainder(Decimal(repr(value)), Decimal(repr(of))) == 0)


# ---- texts ----------------------------------------------------------------------------------


def _sized(kind: Any, breaks: Callable[[int, Any], bool], says: Callable[[Any], str]) -> Keyword:
    def keyword(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
        said = says(given)

        def check(meter: Meter, value: Any) -> Fault | None:
            if isinstance(value, kind) and breaks(len(value), given):
                return Fault(lambda: f"{shown(value)} {said}")
            return None

        return check

    return keyword


def _pattern(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    pattern = reader.patterns.pattern(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, str) and not pattern.found_in(meter, value):
            return Fault(lambda: f"{shown(value)} does not match {given!r}")
        return None

    return check


# ---- lists and objects ----------------------------------------------------------------------


def _unique_items(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check | None:
    if not given:
        return None

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, list | tuple):
            return None
        meter.make(80 * len(value))
        if len({canonical(meter, item) for item in value}) == len(value):
            return None
        return Fault(lambda: f"{shown(value)} has non-unique elements")

    return check


def _required(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            meter.spend(len(given))
            for name in given:
                if name not in value:
                    return Fault(lambda name=name: f"{name!r} is a required property")  # type: ignore[misc]
        return None

    return check


def _dependent_required(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            for name, needs in given.items():
                meter.spend(len(needs) + 1)
                missing = [need for need in needs if name in value and need not in value]
                if missing:
                    return Fault(
                        lambda one=missing[0], of=name: f"{one!r} is a dependency of {of!r}"  # type: ignore[misc]
                    )
        return None

    return check


_TEXT, _LIST, _OBJECT = str, (list, tuple), Mapping

ASSERTIONS: dict[str, Keyword] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(
        lambda value, least: bool(value < least), "{} is less than the minimum of {}"
    ),
    "maximum": _bound(
        lambda value, most: bool(value > most), "{} is greater than the maximum of {}"
    ),
    "exclusiveMinimum": _bound(
        lambda value, least: bool(value <= least), "{} is less than or equal to the minimum of {}"
    ),
    "exclusiveMaximum": _bound(
        lambda value, most: bool(value >= most), "{} is greater than or equal to the maximum of {}"
    ),
    "multipleOf": _multiple_of,
    "minLength": _sized(
        _TEXT,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "is too short",
    ),
    "maxLength": _sized(
        _TEXT,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "is too long",
    ),
    "pattern": _pattern,
    "minItems": _sized(
        _LIST,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "is too short",
    ),
    "maxItems": _sized(
        _LIST,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "is too long",
    ),
    "uniqueItems": _unique_items,
    "minProperties": _sized(
        _OBJECT,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "does not have enough properties",
    ),
    "maxProperties": _sized(
        _OBJECT,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "has too many properties",
    ),
    "required": _required,
    "dependentRequired": _dependent_required,
}
