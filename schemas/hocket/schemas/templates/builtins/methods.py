"""The methods that templates may call on texts, lists and mappings, each charged for before it runs.

`METHODS` lists all of them: any other method is refused when the template is compiled.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hocket.schemas.templates.budget import Meter
from hocket.schemas.templates.builtins.formatting import braces
from hocket.schemas.templates.operators import contains, pay_search, pay_search_from_right
from hocket.schemas.templates.values import attribute, refuse_references, scalar_key

Method = Callable[..., Any]
"""A method: takes the meter, the value, and the arguments of the call."""

SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
_WIDE_SPACES = "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_PIECE_BYTES = 64


def call_method(meter: Meter, value: Any, name: str, args: Any, named: Any) -> Any:
    """Call a method of a value; raise TypeError if values of its kind do not have it."""
    if isinstance(value, str):
        found, kind = TEXT_METHODS.get(name), "text"
        refuse_references((*args, *named.values()))
    elif isinstance(value, Mapping):
        found, kind = MAPPING_METHODS.get(name), "mapping"
    elif isinstance(value, list | tuple | range):
        found, kind = LIST_METHODS.get(name), "list"
    else:
        attribute(value, name)  # raises if it is missing
        found, kind = None, type(value).__name__
    if found is None:
        raise TypeError(f"a {kind} has no method `{name}()`")
    return found(meter, value, *args, **named)


# ---- texts ----------------------------------------------------------------------------------


def _read(name: str) -> Method:
    """Return a method that reads each character and returns no text."""
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, *args: Any) -> Any:
        meter.read(len(text))
        return method(text, *args)

    return call


def _case(name: str) -> Method:
    """Return a method whose result has up to three characters for each one in the text."""
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str) -> str:
        meter.text(len(text) if text.isascii() else 3 * len(text))
        result: str = method(text)
        return result

    return call


def _cut(name: str) -> Method:
    """Return a method whose result is a part of the text."""
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, part: str) -> str:
        meter.text(len(text))
        pay_search(meter, text, _text(part))
        result: str = method(text, part)
        return result

    return call


def _stripped(name: str) -> Method:
    """Return a method that compares the characters at the ends with each of those to remove."""
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, chars: str | None = None) -> str:
        meter.text(len(text))
        if chars is not None:
            meter.spend((len(text) * len(_text(chars)) >> 6) + 1)
        result: str = method(text, chars)
        return result

    return call


def _padded(name: str) -> Method:
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, width: int, *args: str) -> str:
        meter.text(max(len(text), width))
        result: str = method(text, width, *args)
        return result

    return call


def _search(name: str, pay: Callable[[Meter, str, str], None]) -> Method:
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, wanted: str, *args: int) -> Any:
        pay(meter, text, _text(wanted))
        return method(text, wanted, *args)

    return call


def _expandtabs(meter: Meter, text: str, tabsize: int = 8) -> str:
    meter.text(len(text) + text.count("\t") * max(tabsize, 0))
    return text.expandtabs(tabsize)


def _begins(name: str) -> Method:
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, wanted: Any, *args: int) -> bool:
        for one in wanted if isinstance(wanted, tuple) else (wanted,):
            meter.spend((len(_text(one)) >> 7) + 1)
        return bool(method(text, wanted, *args))

    return call


def replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    """Return the text with `old` replaced by `new`, up to `count` times."""
    pay_search(meter, text, _text(old))
    times = text.count(old)
    times = times if count < 0 else min(times, count)
    meter.text(len(text) + times * max(len(_text(new)) - len(old), 0))
    meter.spend(times >> 2)
    return text.replace(old, new, count)


def _join(meter: Meter, glue: str, texts: Any) -> str:
    meter.spend(len(texts))
    meter.text(sum(len(_text(text)) + len(glue) for text in texts))
    return glue.join(texts)


def _split(
    meter: Meter, text: str, sep: str | None = None, maxsplit: int = -1, *, right: bool = False
) -> list[str]:
    if sep is None:
        meter.spend(len(text) >> 3)
        cuts = sum(map(text.count, SPACES))
        cuts += 0 if text.isascii() else sum(map(text.count, _WIDE_SPACES))
    else:
        (pay_search_from_right if right else pay_search)(meter, text, _text(sep))
        cuts = text.count(sep)
    cuts = cuts if maxsplit < 0 else min(cuts, maxsplit)
    meter.text(len(text))
    meter.items(cuts + 1, _PIECE_BYTES)
    meter.spend(cuts)
    return text.rsplit(sep, maxsplit) if right else text.split(sep, maxsplit)


def _rsplit(meter: Meter, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return _split(meter, text, sep, maxsplit, right=True)


def _splitlines(meter: Meter, text: str, keepends: bool = False) -> list[str]:
    lines = sum(map(text.count, _LINE_ENDS))
    meter.text(len(text))
    meter.items(lines + 1, _PIECE_BYTES)
    meter.spend(lines)
    return text.splitlines(keepends)


def _partition(name: str, pay: Callable[[Meter, str, str], None]) -> Method:
    method: Method = getattr(str, name)

    def call(meter: Meter, text: str, sep: str) -> tuple[str, ...]:
        pay(meter, text, _text(sep))
        meter.text(len(text))
        result: tuple[str, ...] = method(text, sep)
        return result

    return call


def _format(meter: Meter, text: str, *args: Any, **named: Any) -> str:
    return braces(meter, text, args, named)


def _format_map(meter: Meter, text: str, names: Mapping[str, Any]) -> str:
    return braces(meter, text, (), names)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"it must be text, not {type(value).__name__.lower()}")
    return value


TEXT_METHODS: dict[str, Method] = {
    **{
        name: _read(name)
        for name in (
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
        )
    },
    **{
        name: _case(name)
        for name in ("capitalize", "casefold", "lower", "swapcase", "title", "upper")
    },
    **{name: _cut(name) for name in ("removeprefix", "removesuffix")},
    **{name: _stripped(name) for name in ("lstrip", "rstrip", "strip")},
    **{name: _padded(name) for name in ("center", "ljust", "rjust", "zfill")},
    **{name: _search(name, pay_search) for name in ("count", "find", "index")},
    **{name: _search(name, pay_search_from_right) for name in ("rfind", "rindex")},
    **{name: _begins(name) for name in ("endswith", "startswith")},
    "expandtabs": _expandtabs,
    "format": _format,
    "format_map": _format_map,
    "join": _join,
    "partition": _partition("partition", pay_search),
    "replace": replace,
    "rpartition": _partition("rpartition", pay_search_from_right),
    "rsplit": _rsplit,
    "split": _split,
    "splitlines": _splitlines,
}


# ---- lists and mappings ---------------------------------------------------------------------


def _list_count(meter: Meter, values: Any, wanted: Any) -> int:
    contains(meter, wanted, values)
    count: int = values.count(wanted)
    return count


def _list_index(meter: Meter, values: Any, wanted: Any, *args: int) -> int:
    contains(meter, wanted, values)
    place: int = values.index(wanted, *args)
    return place


def _copy(meter: Meter, values: Any) -> Any:
    if isinstance(values, Mapping):
        meter.items(len(values), 100)
        return dict(values)
    meter.items(len(values))
    return list(values)


def _get(meter: Meter, mapping: Mapping[str, Any], key: Any, default: Any = None) -> Any:
    return mapping.get(scalar_key(key), default)


def _items(meter: Meter, mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
    meter.items(len(mapping), 64)
    return list(mapping.items())


def _keys(meter: Meter, mapping: Mapping[str, Any]) -> list[str]:
    meter.items(len(mapping))
    return list(mapping)


def _values(meter: Meter, mapping: Mapping[str, Any]) -> list[Any]:
    meter.items(len(mapping))
    return list(mapping.values())


LIST_METHODS: dict[str, Method] = {"copy": _copy, "count": _list_count, "index": _list_index}
MAPPING_METHODS: dict[str, Method] = {
    "copy": _copy,
    "get": _get,
    "items": _items,
    "keys": _keys,
    "values": _values,
}
METHODS = frozenset({*TEXT_METHODS, *LIST_METHODS, *MAPPING_METHODS})
