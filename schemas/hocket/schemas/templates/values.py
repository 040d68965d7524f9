"""The values that templates handle, and what may be read from them: keys of mappings, and items of lists
and texts, nothing else. Python attributes are never looked up, so none can be reached.

Values are those of JSON, plus tuples, ranges, missing values (Jinja2's strict Undefined), and the four
kinds of `Readable`. A reference to a large value is passed on like any other, but whatever would read it
refuses it.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined, Undefined

from hocket.schemas.checks.large_values import MARK, is_reference
from hocket.schemas.checks.plain_json import MAX_DEPTH
from hocket.schemas.templates.budget import (
    DEEP_CURE,
    NUMBER_CURE,
    LargeValueRead,
    Meter,
    Refused,
)

SURELY_SHORT = 2_000_000
"""Texts that cannot be longer than this are made first and charged for afterwards."""


_MISSING = 16
"""The operations for making the object that represents a missing value."""


class Escaped(str):
    """Text that was escaped for HTML, or is declared to be; `escape` leaves it unchanged."""

    __slots__ = ()


class Readable:
    """An object of the evaluator that has named parts, such as `loop`."""

    __slots__ = ()

    def part(self, name: str) -> Any:
        """Return a part, or a missing value."""
        return StrictUndefined(obj=self, name=name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"


class Namespace(Readable):
    """The result of `namespace()`: names that inner loops may set."""

    __slots__ = ("parts",)

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def part(self, name: str) -> Any:
        return self.parts[name] if name in self.parts else super().part(name)


class Group(tuple[Any, ...]):
    """A group of `groupby`: its key and its items, which are also `grouper` and `list`."""

    __slots__ = ()


def refuse_reference(value: Any) -> None:
    """Raise LargeValueRead if a value is a reference to a large one."""
    if is_reference(value):
        raise LargeValueRead(value)


def refuse_references(values: Collection[Any]) -> None:
    """Raise LargeValueRead if one of the values is a reference to a large one."""
    if dict in map(type, values):
        for value in values:
            refuse_reference(value)


def attribute(value: Any, name: str) -> Any:
    """Return the value of `value.name`."""
    if type(value) is dict:
        if MARK in value:
            refuse_reference(value)
        return value[name] if name in value else StrictUndefined(obj=value, name=name)
    if isinstance(value, Mapping):
        try:
            return value[name]
        except KeyError:
            return StrictUndefined(obj=value, name=name)
    if isinstance(value, Readable):
        return value.part(name)
    if isinstance(value, Group) and name in ("grouper", "list"):
        return value[0 if name == "grouper" else 1]
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return StrictUndefined(obj=value, name=name)


def item(meter: Meter, value: Any, key: Any) -> Any:
    """Return the value of `value[key]`."""
    if isinstance(value, Mapping):
        if type(value) is dict and MARK in value:
            refuse_reference(value)
        try:
            return value[scalar_key(key)]
        except KeyError:
            meter.spend(_MISSING)
            return StrictUndefined(obj=value, name=_name(key))
        except TypeError:  # a list or a slice is no key; nothing is there, as in Jinja2
            meter.spend(_MISSING)
            return StrictUndefined(obj=value, name=type(key).__name__)
    if isinstance(key, str):
        meter.spend(_MISSING)
        return attribute(value, key)
    if isinstance(key, slice):
        return _sliced(meter, value, key)
    if isinstance(value, str | list | tuple | range) and isinstance(key, int):
        try:
            return value[key]
        except IndexError:
            meter.spend(_MISSING)
            return StrictUndefined(obj=value, name=key)  # type: ignore[arg-type]
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(key, Undefined):
        key._fail_with_undefined_error()
    refuse_reference(key)
    return StrictUndefined(obj=value, name=_name(key))


def _name(key: Any) -> str:
    """Return how a message names a key. The text of a list may be endless: it may hold one list twice,
    which holds another twice."""
    if key is None or isinstance(key, str | bool | int | float):
        return str(key)[:100]
    return type(key).__name__


def _sliced(meter: Meter, value: Any, cut: slice) -> Any:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    places = all(part is None or isinstance(part, int) for part in (cut.start, cut.stop, cut.step))
    if not places:
        refuse_references((cut.start, cut.stop, cut.step))
    if not places or cut.step == 0 or not isinstance(value, str | list | tuple | range):
        return StrictUndefined(obj=value, name="slice")
    length = len(range(*cut.indices(len(value))))
    if isinstance(value, str):
        meter.text(length)
    else:
        meter.items(length)
    return value[cut]


def scalar_key(key: Any) -> Any:
    """Return a key of a mapping; raise TypeError if it is not text or a number."""
    if key is None or isinstance(key, str | int | float):
        return key
    if isinstance(key, Undefined):
        key._fail_with_undefined_error()
    refuse_reference(key)
    raise TypeError(f"a {type(key).__name__} cannot be the key of a mapping")


def hashed(value: Any) -> Any:
    """Return what a set holds of a value, equal for values that are equal. Anybody can choose numbers
    that all have one hash; those of texts are salted."""
    if isinstance(value, int | float):
        whole = isinstance(value, int) or value.is_integer()
        return ("number", str(int(value) if whole else value))
    if isinstance(value, tuple):
        return ("tuple", *map(hashed, value))
    if isinstance(value, range):  # those with the same numbers are equal
        return ("range", len(value), *(map(hashed, (value[0], value[-1])) if value else ()))
    return value


def sequence(value: Any) -> Sequence[Any]:
    """Return what a template iterates over in a value: items, keys or characters."""
    if isinstance(value, list | tuple | range | str):
        return value
    if isinstance(value, Mapping):
        refuse_reference(value)
        return list(value)
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    raise TypeError(f"a {type(value).__name__} has no items")


def text_of(meter: Meter, value: Any) -> str:
    """Return the text of a value as a template prints it, which for lists and mappings is Python's."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, range):
        return str(value)
    if isinstance(value, list | tuple | Mapping):
        weight = weigh(meter, value)
        if 10 * weight.chars + 4 * weight.values > SURELY_SHORT:
            weight = weigh(meter, value, printed_size)
            meter.text(weight.chars + 4 * weight.values)
        text = str(value if isinstance(value, list | tuple | dict) else dict(value))
        meter.text(len(text))
        return text
    return f"<{type(value).__name__.lower()}>"


def printed_size(text: str) -> int:
    """Return the length of a text's `repr`, including quotes and escapes."""
    return len(text) + 2 if text.isalnum() else len(repr(text))


class Weight:
    """The weight of a value with all its contents; parts that occur twice count twice."""

    __slots__ = ("chars", "depth", "values")

    def __init__(self) -> None:
        self.values = 0
        self.chars = 0
        self.depth = 0


def weigh(meter: Meter, value: Any, size: Callable[[str], int] = len) -> Weight:
    """Return the number of values in a value and the characters of its texts and numbers, charging for
    each of them; raise Refused if it nests too deep, or has a reference to a large value. `size` gives
    the length of a text."""
    weight = Weight()
    level: list[Any] = [(value,)]
    while level:
        if weight.depth > MAX_DEPTH:
            raise too_deep()
        below: list[Any] = []
        for container in level:
            count, chars, parts = len(container), 0, container
            if isinstance(container, Mapping):
                if type(container) is dict and MARK in container:
                    refuse_reference(container)
                for key in container:
                    chars += size(key) if isinstance(key, str) else 26
                count, parts = 2 * count, container.values()
            for part in parts:
                kind = type(part)
                if kind is str:
                    chars += size(part)
                elif kind is int:
                    chars += part.bit_length() // 3 + 2
                elif isinstance(part, list | tuple | Mapping | range):
                    below.append(part)
                else:
                    chars += size(part) if isinstance(part, str) else 26
            weight.values += count
            weight.chars += chars
            meter.spend(3 * count + (chars >> 4) + 10)
        level = below
        weight.depth += 1
    weight.depth -= 1
    return weight


def checked(value: Any) -> Any:
    """Return a computed number; raise Refused for one that JSON or Postgres may not accept."""
    kind = type(value)
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise Refused("an integer grows beyond 64 bits", NUMBER_CURE)
    elif kind is float:
        if not math.isfinite(value):
            raise Refused("it computes a number that is not finite", NUMBER_CURE)
    elif kind is complex:
        raise Refused("it computes a number that is not real", NUMBER_CURE)
    return value


def too_deep() -> Refused:
    return Refused(f"it nests deeper than {MAX_DEPTH} levels", DEEP_CURE)
