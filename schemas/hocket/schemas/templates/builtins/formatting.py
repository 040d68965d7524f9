"""Python's two ways to format text, `%` and `format()`, with bounded fields and no attributes."""

import re
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from hocket.schemas.templates.budget import Meter, Refused
from hocket.schemas.templates.values import attribute, item, text_of

MAX_FIELD = 1_000
"""The limit on the width and precision of a field."""
_FIELD_CURE = f"Use widths and precisions up to {MAX_FIELD:,}."

_PERCENT = re.compile(
    r"%(?:\(([^()]{0,200})\))?([-+ #0]{0,5})(\d{0,5})(?:\.(\d{0,5}))?([a-zA-Z%]|)", re.DOTALL
)
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d{0,5})[,_]?(?:\.(\d{1,5}))?([bdeEfFgGnosxX%]?)")


def percent(meter: Meter, text: str, values: Any) -> str:
    """Return `text % values`."""
    names = values if isinstance(values, Mapping) else None
    given: Sequence[Any] = values if isinstance(values, tuple) else (values,)
    parts: list[str] = []
    length = used = end = 0
    while (start := text.find("%", end)) >= 0:
        match = _PERCENT.match(text, start)
        assert match is not None
        name, flags, width, precision, kind = match.groups()
        if not kind:
            raise ValueError("a format is incomplete, or expressions do not support it")
        piece = "%"
        if kind != "%":
            if name is not None:
                if names is None:
                    raise TypeError("format requires a mapping")
                value = names[name]
            else:
                if used >= len(given):
                    raise TypeError("not enough arguments for format string")
                value = given[used]
                used += 1
            piece = _percent_field(meter, flags, width, precision, kind, value)
        length += start - end + len(piece)
        parts += (text[end:start], piece)
        meter.spend(8)
        meter.make(4 * (start - end) + 64)
        end = match.end()
    if used < len(given) and not _has_items(values):
        raise TypeError("not all arguments converted during string formatting")
    parts.append(text[end:])
    meter.text(length + len(text) - end)
    return "".join(parts)


def _has_items(values: Any) -> bool:
    """Tell whether Python skips the check that all values were used, because this may be a mapping."""
    return hasattr(type(values), "__getitem__") and not isinstance(values, tuple | str)


def _percent_field(
    meter: Meter, flags: str, width: str, precision: str | None, kind: str, value: Any
) -> str:
    _check_sizes(width, precision)
    point = "" if precision is None else f".{precision}"
    if kind in "sra":
        shown = text_of(meter, value) if kind == "s" else _repr(meter, value, kind)
        meter.text(len(shown) + MAX_FIELD)
        return f"%{flags}{width}{point}s" % shown
    if kind not in "diouxXeEfFgG":
        raise ValueError(f"unsupported format character '{kind}'")
    if isinstance(value, str | list | tuple | Mapping):
        raise TypeError(f"%{kind} format: a real number is required, not {type(value).__name__}")
    meter.text(2 * MAX_FIELD)
    result: str = f"%{flags}{width}{point}{kind}" % (value,)
    return result


def braces(meter: Meter, text: str, given: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return `text.format(*given, **named)`."""
    parts: list[str] = []
    length = 0
    automatic = 0
    meter.read(len(text))
    for literal, name, spec, conversion in Formatter().parse(text):
        meter.spend(8)
        piece = ""
        if name is not None:
            first, rest = formatter_field_name_split(name)
            if first == "":
                first, automatic = automatic, automatic + 1
            value = given[first] if isinstance(first, int) else named[first]
            for is_attribute, key in rest:
                meter.spend(2)
                value = attribute(value, key) if is_attribute else item(meter, value, key)
            piece = _braces_field(meter, value, spec or "", conversion)
        parts += (literal, piece)
        length += len(literal) + len(piece)
        meter.make(4 * len(literal) + 64)
    meter.text(length)
    return "".join(parts)


def _braces_field(meter: Meter, value: Any, spec: str, conversion: str | None) -> str:
    if conversion is not None:
        value = text_of(meter, value) if conversion == "s" else _repr(meter, value, conversion)
    if not spec or isinstance(value, list | tuple | Mapping | range):
        if spec:
            raise TypeError(f"a {type(value).__name__} takes no format such as `{spec[:40]}`")
        return text_of(meter, value)
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise ValueError(f"`{spec[:40]}` is not a format that expressions support")
    _check_sizes(found[1], found[2])
    meter.text((len(value) if isinstance(value, str) else MAX_FIELD) + MAX_FIELD)
    return format(value, spec)


def _repr(meter: Meter, value: Any, kind: str) -> str:
    if kind not in ("r", "a"):
        raise ValueError(f"unknown conversion `{kind}`")
    if isinstance(value, str):
        meter.text(10 * len(value) + 2)
    else:
        text_of(meter, value)
    return repr(value) if kind == "r" else ascii(value)


def _check_sizes(*sizes: str | None) -> None:
    for size in sizes:
        if size and int(size) > MAX_FIELD:
            raise Refused(f"a format asks for {int(size):,} places", _FIELD_CURE)
