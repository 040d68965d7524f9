"""The operators of templates, each charged for before it runs."""

from collections.abc import Callable, Mapping
from typing import Any

from hocket.schemas.templates.budget import NUMBER_CURE, Meter, Refused
from hocket.schemas.templates.builtins.formatting import percent
from hocket.schemas.templates.values import (
    checked,
    refuse_reference,
    refuse_references,
    scalar_key,
    text_of,
    weigh,
)

Binary = Callable[[Meter, Any, Any], Any]

_CONTAINERS = (list, tuple, Mapping)
MAX_EXPONENT = 1_024


def add(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        meter.text(len(left) + len(right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        meter.items(len(left) + len(right))
    return checked(left + right)


def subtract(meter: Meter, left: Any, right: Any) -> Any:
    return checked(left - right)


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, int) and not isinstance(right, int | float):
        left, right = right, left
    if isinstance(right, int):
        if isinstance(left, str):
            meter.text(len(left) * max(right, 0))
        elif isinstance(left, list | tuple):
            meter.items(len(left) * max(right, 0))
    return checked(left * right)


def divide(meter: Meter, left: Any, right: Any) -> Any:
    return checked(left / right)


def divide_whole(meter: Meter, left: Any, right: Any) -> Any:
    return checked(left // right)


def modulo(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, str):
        return percent(meter, left, right)
    return checked(left % right)


def power(meter: Meter, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        if right > MAX_EXPONENT or (abs(left) > 1 and left.bit_length() * right > 128):
            raise Refused("an integer grows beyond 64 bits", NUMBER_CURE)
        if right < -MAX_EXPONENT:
            left = float(left)
    return checked(left**right)


def negative(meter: Meter, value: Any) -> Any:
    return checked(-value)


def positive(meter: Meter, value: Any) -> Any:
    return +value


def equal(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right, same_length=True)
    return bool(left == right)


def not_equal(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right, same_length=True)
    return bool(left != right)


def less(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right)
    return bool(left < right)


def less_or_equal(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right)
    return bool(left <= right)


def greater(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right)
    return bool(left > right)


def greater_or_equal(meter: Meter, left: Any, right: Any) -> bool:
    pay_comparison(meter, left, right)
    return bool(left >= right)


def pay_comparison(meter: Meter, left: Any, right: Any, *, same_length: bool = False) -> None:
    """Charge for a comparison; with `same_length`, values of different lengths are never equal."""
    if isinstance(left, str) and isinstance(right, str):
        meter.spend(min(len(left), len(right)) >> 7)
        return
    if type(left) is dict or type(right) is dict:
        refuse_references((left, right))
    if (
        isinstance(left, _CONTAINERS)
        and isinstance(right, _CONTAINERS)
        and (not same_length or len(left) == len(right))
    ):
        weigh(meter, left)
        weigh(meter, right)


def contains(meter: Meter, value: Any, within: Any) -> bool:
    if type(value) is dict or type(within) is dict:
        refuse_references((value, within))
    if isinstance(within, str) and isinstance(value, str):
        pay_search(meter, within, value)
    elif isinstance(within, list | tuple):
        meter.spend((len(within) >> 2) + 1)
        if isinstance(value, str):
            meter.spend(len(within) * (len(value) >> 7))
        elif isinstance(value, _CONTAINERS):
            weight = weigh(meter, value)
            meter.spend(len(within) * (weight.values + (weight.chars >> 7)))
            for one in within:
                _refuse_compared(value, one)
        refuse_references(within)
    elif isinstance(within, Mapping):
        return scalar_key(value) in within
    elif isinstance(within, range) and not isinstance(value, int):
        meter.spend(len(within))
    return bool(value in within)


def _refuse_compared(value: Any, other: Any) -> None:
    """Raise LargeValueRead if a part of `value` would be compared with a reference in `other`. This
    takes no longer than looking through `value`."""
    refuse_reference(other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        for key in value:
            if key in other:
                _refuse_compared(value[key], other[key])
    elif isinstance(value, list | tuple) and isinstance(other, list | tuple):
        for one, two in zip(value, other, strict=False):
            _refuse_compared(one, two)


def not_contains(meter: Meter, value: Any, within: Any) -> bool:
    return not contains(meter, value, within)


def pay_search(meter: Meter, text: str, wanted: str) -> None:
    """Charge for a search from the left, for which Python takes linear time beyond these sizes."""
    length, short = len(text), len(wanted)
    linear = length > 30_000 or (length >= 2_500 and short >= 100)
    meter.spend(((length * min(short, 6 if linear else 100)) >> 6) + 1 + (short >> 4))


def pay_search_from_right(meter: Meter, text: str, wanted: str) -> None:
    """Charge for a search from the right, which may compare every pair of characters."""
    meter.spend(((len(text) * max(min(len(wanted), len(text) - len(wanted)), 1)) >> 6) + 1)


def concatenate(meter: Meter, parts: list[Any]) -> str:
    texts = [part if type(part) is str else text_of(meter, part) for part in parts]
    meter.text(sum(map(len, texts)))
    return "".join(texts)


BINARY: dict[str, Binary] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": divide_whole,
    "%": modulo,
    "**": power,
}
COMPARISONS: dict[str, Binary] = {
    "eq": equal,
    "ne": not_equal,
    "lt": less,
    "lteq": less_or_equal,
    "gt": greater,
    "gteq": greater_or_equal,
    "in": contains,
    "notin": not_contains,
}
