"""Filters that return texts and numbers, each charged for before it runs; they behave as in Jinja2."""

import json
import math
import re
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from textwrap import wrap
from typing import Any
from urllib.parse import quote

from jinja2 import Undefined
from jinja2.filters import do_filesizeformat, do_float, do_int, do_title
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from hocket.schemas.templates.budget import Meter, Refused
from hocket.schemas.templates.builtins.formatting import percent
from hocket.schemas.templates.builtins.methods import MAPPING_METHODS, SPACES, TEXT_METHODS, Method
from hocket.schemas.templates.builtins.methods import replace as replace_text
from hocket.schemas.templates.values import (
    SURELY_SHORT,
    Escaped,
    checked,
    refuse_references,
    text_of,
    weigh,
)

MAX_PRECISION = 300
MAX_JSON_INDENT = 16
MAX_WRAPPED_CHARS = 100_000
TRUNCATE_LEEWAY = 5

_ATTRIBUTE_BREAKS = re.compile(r"[\s/>=]", flags=re.ASCII)
_WORD = re.compile(r"\w+")


def _as_text(name: str) -> Method:
    """Return a method of texts as a filter, which converts any value to text first."""
    method = TEXT_METHODS[name]

    def call(meter: Meter, value: Any) -> Any:
        return method(meter, text_of(meter, value))

    return call


def absolute(meter: Meter, value: Any) -> Any:
    return checked(abs(value))


def center(meter: Meter, value: Any, width: int = 80) -> str:
    return str(TEXT_METHODS["center"](meter, text_of(meter, value), width))


def default(meter: Meter, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def escaped(meter: Meter, value: Any) -> Escaped:
    return value if isinstance(value, Escaped) else force_escaped(meter, value)


def force_escaped(meter: Meter, value: Any) -> Escaped:
    text = str(text_of(meter, value))
    meter.text(len(text) + 4 * sum(map(text.count, "&<>'\"")))
    return Escaped(escape(text))


def declared_safe(meter: Meter, value: Any) -> Escaped:
    text = text_of(meter, value)
    meter.text(len(text))
    return Escaped(text)


def file_size(meter: Meter, value: Any, binary: bool = False) -> str:
    return do_filesizeformat(checked(float(value)), binary)


def number(meter: Meter, value: Any, default: Any = 0.0) -> Any:
    _pay_number(meter, value)
    return checked(do_float(_given(value), default))


def integer(meter: Meter, value: Any, default: Any = 0, base: int = 10) -> Any:
    _pay_number(meter, value)
    return checked(do_int(_given(value), default, base))


def formatted(meter: Meter, value: Any, *args: Any, **named: Any) -> str:
    if args and named:
        raise TypeError("it takes positional or named arguments, not both at once")
    return percent(meter, text_of(meter, value), named or args)


def indented(
    meter: Meter, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    text = text_of(meter, value)
    indent_chars = len(width) if isinstance(width, str) else max(width, 0)
    lines = TEXT_METHODS["splitlines"](meter, text + "\n")
    meter.text(len(text) + (len(lines) + 1) * (indent_chars + 1))
    indent = width if isinstance(width, str) else " " * width
    if blank:
        result = ("\n" + indent).join(lines)
    else:
        rest = [indent + line if line else line for line in lines[1:]]
        result = "\n".join([lines[0], *rest])
    return indent + result if first else result


def replaced(meter: Meter, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, before, after = (text_of(meter, one) for one in (value, old, new))
    return replace_text(meter, text, before, after, -1 if count is None else count)


def rounded(meter: Meter, value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > MAX_PRECISION:
        raise Refused(f"`round` is asked for {precision} places", f"Use up to {MAX_PRECISION}.")
    if method == "common":
        return checked(round(value, precision))
    if method not in ("ceil", "floor"):
        raise ValueError("the method of `round` is `common`, `ceil` or `floor`")
    meter.spend(8)
    rounding = math.ceil if method == "ceil" else math.floor
    return checked(rounding(value * (10**precision)) / (10**precision))


def shown(meter: Meter, value: Any) -> str:
    return text_of(meter, value)


def without_tags(meter: Meter, value: Any) -> str:
    text = text_of(meter, value)
    meter.text(3 * len(text))
    pieces = text.count("<") + sum(map(text.count, SPACES)) + text.count("&")
    meter.items(pieces, 64)
    meter.spend(12 * pieces)
    return str(Markup(text).striptags())


def titled(meter: Meter, value: Any) -> str:
    text = text_of(meter, value)
    meter.text(len(text) if text.isascii() else 3 * len(text))
    meter.items(sum(map(text.count, SPACES + "-({[<")), 120)
    meter.spend(2 * len(text) + 40)
    return do_title(str(text))


def as_json(meter: Meter, value: Any, indent: int | None = None) -> Escaped:
    if indent is not None and not 0 <= indent <= MAX_JSON_INDENT:
        raise Refused(f"`tojson` is asked to indent by {indent}", f"Use 0 to {MAX_JSON_INDENT}.")
    weight = weigh(meter, value)
    spaces = 4 if indent is None else 4 + indent * (weight.depth + 1)
    meter.spend(weight.values * (4 if indent is None else 20))
    if 12 * weight.chars + weight.values * spaces > 4 * SURELY_SHORT:  # it is ASCII
        weight = weigh(meter, value, _json_size)
        meter.text(weight.chars + weight.values * spaces)
    text = htmlsafe_json_dumps(value, dumps=json.dumps, sort_keys=True, indent=indent)
    meter.text(len(text))
    return Escaped(text)


def trimmed(meter: Meter, value: Any, chars: str | None = None) -> str:
    return str(TEXT_METHODS["strip"](meter, text_of(meter, value), chars))


def truncated(
    meter: Meter,
    value: Any,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int | None = None,
) -> Any:
    spare = TRUNCATE_LEEWAY if leeway is None else leeway
    if length < len(end) or spare < 0:
        raise ValueError(
            f"`truncate` needs a length of at least {len(end)} and a leeway of 0 or more"
        )
    if len(value) <= length + spare:
        return value
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} cannot be truncated")
    meter.text(2 * length)
    kept = value[: length - len(end)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def url_encoded(meter: Meter, value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, list | tuple | Mapping):
        return _quoted(meter, value, for_query=False)
    pairs = value.items() if isinstance(value, Mapping) else value
    refuse_references(pairs)
    parts = []
    for pair in pairs:
        name, part = pair
        parts.append(
            f"{_quoted(meter, name, for_query=True)}={_quoted(meter, part, for_query=True)}"
        )
    meter.text(sum(map(len, parts)) + len(parts))
    return "&".join(parts)


def word_count(meter: Meter, value: Any) -> int:
    text = text_of(meter, value)
    meter.spend(2 * len(text))
    return sum(1 for _ in _WORD.finditer(text))


def wrapped(
    meter: Meter,
    value: Any,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    text = text_of(meter, value)
    glue = "\n" if wrapstring is None else wrapstring
    if len(text) > MAX_WRAPPED_CHARS:
        raise Refused(
            f"`wordwrap` is given {len(text):,} characters", f"Wrap up to {MAX_WRAPPED_CHARS:,}."
        )
    if width <= 0:
        raise ValueError("`wordwrap` needs a width above 0")
    longest = max(map(len, text.split()), default=0)
    lines_at_most = len(text) // width * 2 + text.count("\n") + 1
    meter.spend(10 * len(text) + 20 * lines_at_most + (longest * longest // width >> 6))
    meter.text(len(text) + lines_at_most * len(glue))
    meter.items(len(text), 80)
    return glue.join(
        glue.join(
            wrap(
                line,
                width=width,
                expand_tabs=False,
                replace_whitespace=False,
                break_long_words=break_long_words,
                break_on_hyphens=break_on_hyphens,
            )
        )
        for line in text.splitlines()
    )


def xml_attributes(meter: Meter, value: Any, autospace: bool = True) -> str:
    parts = []
    for key, part in MAPPING_METHODS["items"](meter, value):
        meter.spend(8)
        if part is None or isinstance(part, Undefined):
            continue
        name = text_of(meter, key)
        if _ATTRIBUTE_BREAKS.search(name):
            raise ValueError(f"`{name[:40]}` cannot be the name of an attribute")
        parts.append(f'{escaped(meter, name)}="{escaped(meter, part)}"')
    meter.text(sum(map(len, parts)) + len(parts) + 1)
    result = " ".join(parts)
    return " " + result if autospace and result else result


def _pay_number(meter: Meter, value: Any) -> None:
    if isinstance(value, str):
        meter.read(len(value))


def _given(value: Any) -> Any:
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return value


def _json_size(text: str) -> int:
    """Return the length of a text in JSON that is safe in HTML."""
    if text.isalnum() and text.isascii():
        return len(text) + 2
    return len(encode_basestring_ascii(text)) + 5 * sum(map(text.count, "<>&'"))


def _quoted(meter: Meter, value: Any, *, for_query: bool) -> str:
    text = text_of(meter, value)
    size = len(text) if text.isascii() else 4 * len(text)
    meter.text(3 * size)
    meter.spend(size)
    quoted = quote(text.encode(), b"" if for_query else b"/")
    return quoted.replace("%20", "+") if for_query else quoted


TEXT_FILTERS: dict[str, Method] = {
    "abs": absolute,
    "capitalize": _as_text("capitalize"),
    "center": center,
    "d": default,
    "default": default,
    "e": escaped,
    "escape": escaped,
    "filesizeformat": file_size,
    "float": number,
    "forceescape": force_escaped,
    "format": formatted,
    "indent": indented,
    "int": integer,
    "lower": _as_text("lower"),
    "replace": replaced,
    "round": rounded,
    "safe": declared_safe,
    "string": shown,
    "striptags": without_tags,
    "title": titled,
    "tojson": as_json,
    "trim": trimmed,
    "truncate": truncated,
    "upper": _as_text("upper"),
    "urlencode": url_encoded,
    "wordcount": word_count,
    "wordwrap": wrapped,
    "xmlattr": xml_attributes,
}
