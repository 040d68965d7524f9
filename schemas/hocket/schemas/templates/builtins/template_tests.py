"""The tests of templates (`is even`), each charged for before it runs; they behave as in Jinja2."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Undefined

from hocket.schemas.templates.budget import Meter
from hocket.schemas.templates.builtins.methods import Method
from hocket.schemas.templates.operators import (
    contains,
    equal,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    modulo,
    not_equal,
)
from hocket.schemas.templates.values import Escaped, text_of


def is_odd(meter: Meter, value: Any) -> bool:
    return bool(modulo(meter, value, 2) == 1)


def is_even(meter: Meter, value: Any) -> bool:
    return bool(modulo(meter, value, 2) == 0)


def is_divisible(meter: Meter, value: Any, num: Any) -> bool:
    return bool(modulo(meter, value, num) == 0)


def is_defined(meter: Meter, value: Any) -> bool:
    return not isinstance(value, Undefined)


def is_undefined(meter: Meter, value: Any) -> bool:
    return isinstance(value, Undefined)


def is_none(meter: Meter, value: Any) -> bool:
    return value is None


def is_boolean(meter: Meter, value: Any) -> bool:
    return value is True or value is False


def is_false(meter: Meter, value: Any) -> bool:
    return value is False


def is_true(meter: Meter, value: Any) -> bool:
    return value is True


def is_integer(meter: Meter, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_float(meter: Meter, value: Any) -> bool:
    return isinstance(value, float)


def is_lower(meter: Meter, value: Any) -> bool:
    text = text_of(meter, value)
    meter.read(len(text))
    return text.islower()


def is_upper(meter: Meter, value: Any) -> bool:
    text = text_of(meter, value)
    meter.read(len(text))
    return text.isupper()


def is_string(meter: Meter, value: Any) -> bool:
    return isinstance(value, str)


def is_mapping(meter: Meter, value: Any) -> bool:
    return isinstance(value, Mapping)


def is_number(meter: Meter, value: Any) -> bool:
    return isinstance(value, int | float)


def is_sequence(meter: Meter, value: Any) -> bool:
    return isinstance(value, str | list | tuple | range | Mapping)


def is_same(meter: Meter, value: Any, other: Any) -> bool:
    return value is other


def is_escaped(meter: Meter, value: Any) -> bool:
    return isinstance(value, Escaped)


def is_iterable(meter: Meter, value: Any) -> bool:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return is_sequence(meter, value)


def is_in(meter: Meter, value: Any, seq: Any) -> bool:
    return contains(meter, value, seq)


PASSING_TESTS = frozenset({"defined", "none", "undefined"})
"""Tests that do not read the value: a reference to a large one is like the value itself."""
TESTS: dict[str, Method] = {
    "!=": not_equal,
    "<": less,
    "<=": less_or_equal,
    "==": equal,
    ">": greater,
    ">=": greater_or_equal,
    "boolean": is_boolean,
    "defined": is_defined,
    "divisibleby": is_divisible,
    "eq": equal,
    "equalto": equal,
    "escaped": is_escaped,
    "even": is_even,
    "false": is_false,
    "float": is_float,
    "ge": greater_or_equal,
    "greaterthan": greater,
    "gt": greater,
    "in": is_in,
    "integer": is_integer,
    "iterable": is_iterable,
    "le": less_or_equal,
    "lessthan": less,
    "lower": is_lower,
    "lt": less,
    "mapping": is_mapping,
    "ne": not_equal,
    "none": is_none,
    "number": is_number,
    "odd": is_odd,
    "sameas": is_same,
    "sequence": is_sequence,
    "string": is_string,
    "true": is_true,
    "undefined": is_undefined,
    "upper": is_upper,
}
