"""Holds the results of expressions to what JSON, NATS and Postgres accept: size, depth and types.

Texts in given values are checked on entry (`plain_json`), those in a template when it is compiled, and
numbers where they are computed, so that only containers are traversed here.
"""

from collections.abc import Mapping
from typing import Any

from jinja2 import Undefined

from hocket.schemas.checks.plain_json import MAX_DEPTH
from hocket.schemas.templates.budget import (
    MAX_TOGETHER_OPERATIONS,
    MAX_VALUE_BYTES,
    MAX_VALUE_PARTS,
    SMALLER_CURE,
    Account,
    Meter,
    Refused,
)
from hocket.schemas.templates.values import Namespace, checked, too_deep

LARGE_OPERATIONS = 10_000
"""The operations from which looking through a value is more than its step pays for: 0.5 to 1 ms."""


def check_made(value: Any, account: Account) -> None:
    """Raise Refused for a value made of templates that is too large or too deep. What looking through
    it takes beyond LARGE_OPERATIONS counts: a refused value counts for nothing else."""
    meter = Meter(MAX_TOGETHER_OPERATIONS)
    try:
        _is_json(value, meter)
    finally:
        account.spend(max(0, meter.given - meter.operations_left - LARGE_OPERATIONS))


def check_read(value: Any, account: Account) -> None:
    """Raise Refused for a value that a template only reads and that is too large or too deep. Looking
    through it counts; that of a large one once for all evaluations that are made together, because
    thousands may read it."""
    if account.knows(value):
        return
    meter = Meter(MAX_TOGETHER_OPERATIONS)
    try:
        _is_json(value, meter)
    finally:
        account.used(meter)
    if meter.given - meter.operations_left >= LARGE_OPERATIONS:
        account.know(value)


def plain(value: Any, meter: Meter) -> Any:
    """Return the value of an expression as JSON: tuples become lists.

    Raises Refused if it is too large or too deep, TypeError if it is not JSON."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if isinstance(value, list | Mapping | tuple | range):
        return value if _is_json(value, meter) else _copied(value, meter)
    return _scalar(value)


def _is_json(value: Any, meter: Meter) -> bool:
    """Tell whether all of a value has JSON's own types; raise Refused if it is too large."""
    is_json = True
    bytes_left, parts_left = MAX_VALUE_BYTES, MAX_VALUE_PARTS
    level: list[Any] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise too_deep()
        below: list[Any] = []
        for container in level:
            parts_left -= len(container) + 1
            if parts_left < 0:
                raise Refused(f"it returns more than {MAX_VALUE_PARTS:,} values", SMALLER_CURE)
            size, is_plain = _measured(container, below)
            is_json = is_json and is_plain
            bytes_left -= size
            if bytes_left < 0:
                raise Refused(f"it returns more than {MAX_VALUE_BYTES:,} bytes", SMALLER_CURE)
            meter.spend((len(container) >> 1) + 4)
        level = below
    return is_json


def _measured(container: Any, below: list[Any]) -> tuple[int, bool]:
    """Return the size in bytes of a container with its scalars, and whether all of them have JSON's own
    types; nested containers are added to `below`."""
    size = 4 * len(container) + 2
    parts: Any = container
    if isinstance(container, Mapping):
        keys = [len(key) for key in container if type(key) is str]
        is_plain = type(container) is dict and len(keys) == len(container)
        size += sum(keys)
        parts = container.values()
    else:
        is_plain = type(container) is list
    for part in parts:
        kind = type(part)
        if kind is str:
            size += len(part)
        elif kind is dict or kind is list:
            below.append(part)
        elif kind is int:
            size += part.bit_length() >> 2
        elif part is not None and kind is not float and kind is not bool:
            is_plain = False
            size += _measured_other(part, below)
    return size, is_plain


def _measured_other(part: Any, below: list[Any]) -> int:
    if isinstance(part, list | Mapping | tuple | range):
        below.append(part)
    return len(part) if isinstance(part, str) else 0


def _copied(value: Any, meter: Meter) -> Any:
    meter.spend(4)
    if isinstance(value, Mapping):
        meter.items(len(value), 64)
        return {_key(key): _copied(part, meter) for key, part in value.items()}
    if isinstance(value, list | tuple | range):
        meter.items(len(value), 40)
        return [_copied(part, meter) for part in value]
    return _scalar(value)


def _key(key: Any) -> str:
    return key if type(key) is str else str(key)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _key(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return checked(value)
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, Namespace):
        raise TypeError("it returns a namespace, which is not JSON: read one of its names")
    raise TypeError(f"it returns a {type(value).__name__.lower()}, which is not JSON")
