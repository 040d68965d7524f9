"""Encodes the output of a step as the bytes of a message that every later component can carry. Pure.

Pydantic models, dates, decimals, sets and tuples become JSON. NaN and the infinities become null. The
character U+0000 and unpaired surrogates become U+FFFD, because Postgres refuses them and text from PDFs
or models occasionally contains them. Values that are not JSON, nest too deep or have integers that are
too long raise a typed error.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from msgspec import Raw
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from hocket.schemas.checks.plain_json import MAX_DEPTH, MAX_INTEGER_DIGITS
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import canonical
from hocket.schemas.structs.results import NULL, FinishedAttempt, write
from hocket.workers.errors import OutputNotJson, OutputTooLarge
from hocket.workers.runtime.results.forms import OUTPUT, Form, contents

MAX_RESULT_BYTES = 512 * 1024
"""The limit on a result's message; larger outputs need a blob store."""
MAX_ERROR_TEXT_CHARS = 2_000
REPLACEMENT = "\ufffd"
MAX_TEXT_CHARS = 128 * 1024 * 1024
"""The most characters of text in an output."""
MAX_CONTAINERS = 1_000_000
"""The most lists and dicts in an output; VALUES_PER_CONTAINER other values count as one."""
VALUES_PER_CONTAINER = 5
MAX_ITERATED = 100_000
"""The most items in an output from iterables other than lists, tuples, sets and dicts."""


def encode(finished: FinishedAttempt, output: Any = None, error: ErrorInfo | None = None) -> bytes:
    """Return the message of a result with this output and error; raise OutputNotJson if the output
    cannot be encoded."""
    try:
        output_json, error_json = _json(output), _json(error)
    except PydanticSerializationError:
        return _repaired(finished, output, error)
    if (
        _is_suspicious(output_json)
        or (error is not None and _is_suspicious(error_json))
        or not _has_text_keys(output)
    ):
        return _repaired(finished, output, error)
    return _assembled(finished, output_json, error_json)


def written(finished: FinishedAttempt, output: Any, error: ErrorInfo | None = None) -> bytes:
    """Return the message of a result whose output is plain JSON."""
    return _assembled(finished, _json(output), _json(error))


def check_size(payload: bytes, limit_bytes: int = MAX_RESULT_BYTES) -> None:
    """Raise OutputTooLarge if the message is over the limit."""
    if len(payload) > limit_bytes:
        raise OutputTooLarge(size_bytes=len(payload), limit_bytes=limit_bytes)


def shortened(error: ErrorInfo) -> ErrorInfo:
    """Return an error that fits into a message: without its details, and with its texts cut."""
    return error.model_copy(
        update={"message": error.message[:MAX_ERROR_TEXT_CHARS], "details": {"cut": True}}
    )


def plain(value: Any, field: str = "output", form: Form = OUTPUT) -> Any:
    """Return the value as plain JSON in a form; raise OutputNotJson, naming the place, if that is
    impossible."""
    return _plain(value, field, 0, _Items(form))


class _Items:
    """Counts the items of iterables other than JSON's own, because they may be endless."""

    def __init__(self, form: Form) -> None:
        self.count = 0
        self.form = form

    def of(self, values: Iterable[Any], field: str) -> Iterator[Any]:
        """Yield the items; raise OutputNotJson if there are too many."""
        for value in values:
            self.count += 1
            if self.count > MAX_ITERATED:
                raise _not_json(
                    field, f"it yields more than {MAX_ITERATED} items and is not a list"
                )
            yield value

    def hides(self, value: Any) -> bool:
        """Tell whether a value is used again, but would be only asterisks."""
        return self.form.own_names and isinstance(value, _SECRETS)

    def sort(self, value: Any, array: list[Any]) -> None:
        """Put the items of a set in order, if its own order is none."""
        if not self.form.set_order and isinstance(value, set | frozenset):
            array.sort(key=canonical)


def _plain(value: Any, field: str, depth: int, items: _Items) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, field, depth, items)
    if isinstance(value, str):
        return _whole_text(str.__str__(value))
    if value is None or isinstance(value, bool | int | float):
        return _number(value, field)
    if isinstance(value, BaseModel):
        return _plain(contents(value, items.form), field, depth, items)
    if depth >= MAX_DEPTH:
        raise _not_json(field, f"it nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping) or _has_keys(value):
        return _object(value, field, depth, items)
    if isinstance(value, Iterator):
        raise _not_json(field, f"a {_kind(value)} yields its items only once, and may never end")
    if isinstance(value, Iterable) and not isinstance(value, _READ_AS_TEXT):
        return _array(value, field, depth, items)
    return _converted(value, field, depth, items)


def _number(value: float | None, field: str) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is not None:
        _digits_of(value, field)
    return value


def _has_keys(value: Any) -> bool:
    """Tell whether `dict` would take a value for a mapping. To iterate over it would lose its values (a
    data frame) or their names (a row of a database)."""
    kind = type(value)
    return hasattr(kind, "keys") and hasattr(kind, "__getitem__")


def _pairs(value: Any, field: str, items: _Items) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return dict.items(value)
    if isinstance(value, Mapping):
        return items.of(value.items(), field)
    return items.of(((key, value[key]) for key in value.keys()), field)  # noqa: SIM118 - no mapping


def _object(value: Any, field: str, depth: int, items: _Items) -> dict[str, Any]:
    pairs = _pairs(value, field, items)
    found: dict[str, Any] = {}
    for key, item in pairs:
        text = _whole_text(key if type(key) is str else _key_text(key))
        place = f"{field}.{text}"[:200]
        if text in found:
            raise _not_json(place, "two keys are the same as text")
        found[text] = _plain(item, place, depth + 1, items)
    return found


def _key_text(key: Any) -> str:
    """Return the text that a JSON encoder makes of a key: an Enum's value, a date as in a value."""
    try:
        return str(next(iter(to_jsonable_python({key: None}))))
    except (PydanticSerializationError, ValueError):
        return str(key)


def _array(value: Iterable[Any], field: str, depth: int, items: _Items) -> list[Any]:
    own = type(value) in _SEQUENCES
    array = []
    for index, item in enumerate(value if own else items.of(value, field)):
        kind = type(item)
        if kind is int and -_INTEGER_LIMIT < item < _INTEGER_LIMIT:  # millions of them are common
            array.append(item)
        elif kind is float:
            array.append(item if math.isfinite(item) else None)
        elif kind is str:
            array.append(_whole_text(item))
        elif item is None or kind is bool:
            array.append(item)
        else:
            array.append(_plain(item, f"{field}.{index}"[:200], depth + 1, items))
    items.sort(value, array)
    return array


def check_ends(value: Any) -> None:
    """Raise OutputNotJson if a value holds an iterator (a generator), which may never end, or an integer
    that is too long, which takes minutes to write, and OutputTooLarge if its text is too long; values
    that are held in several places count each time.

    This examines what a JSON encoder reads on its own: dicts, lists, tuples, sets, dataclasses, models,
    their subclasses, and their contents."""
    if type(value) not in _SCALARS:
        _look_through(value)


def makes_more_than(many: int, value: Any) -> bool:
    """Tell whether a JSON encoder makes more values than this of one; reads no more of it than that."""
    count, stack = 0, [value]
    while stack:
        part = stack.pop()
        kind = type(part)
        if kind is str or kind is int or kind in _SCALARS:
            continue
        items: Collection[Any] = part if kind in _ARRAYS else _inside(part)
        count += len(items)
        if count > many:
            return True
        stack += items
    return False


def _look_through(value: Any) -> None:
    seen, chars, values = 1, 0, 1
    stack: list[tuple[Any, str]] = [(value, "output")]
    while stack:
        part, field = stack.pop()
        kind = type(part)
        items: Collection[Any]
        if kind in _ARRAYS:
            items = part
        else:
            items, text_chars = _held_by_dict(part) if kind is dict else _held_by(part, field)
            chars += text_chars
        values += len(items)
        if values > MAX_CONTAINERS * VALUES_PER_CONTAINER:  # checked before visiting them
            many = MAX_CONTAINERS * VALUES_PER_CONTAINER
            raise _not_json(field, f"it makes more than {many} values")
        for item in items:
            kind = type(item)
            if kind is str:
                chars += len(item)
            elif kind is int:
                if not -_WORD < item < _WORD:
                    chars += _digits_of(item, field)
            elif kind not in _SCALARS:
                stack.append((item, field))
        seen += 1
        if chars > MAX_TEXT_CHARS:
            raise OutputTooLarge(size_bytes=chars, limit_bytes=MAX_TEXT_CHARS)
        if seen + len(stack) > MAX_CONTAINERS:  # also true of a value that contains itself
            raise _not_json(field, f"it contains more than {MAX_CONTAINERS} lists and dicts")


def _digits_of(integer: int, field: str) -> int:
    """Return an upper bound of an integer's digits; a subclass may override abs and bit_length."""
    if int.__abs__(integer) >= _INTEGER_LIMIT:
        raise _not_json(field, f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return int.bit_length(integer) // _BITS_PER_DIGIT


def _base_of(text: Any) -> Any:
    return next(base for base in (str, bytes, bytearray) if isinstance(text, base))


def _held_by(part: Any, field: str) -> tuple[Collection[Any], int]:
    """Return the parts that an encoder would read of a value that is not a plain list, tuple or scalar,
    and the length of the value itself, or of its keys, as text."""
    if isinstance(part, dict):
        return _held_by_dict(part)
    if isinstance(part, str | bytes | bytearray):
        return (), _base_of(part).__len__(part)
    if isinstance(part, int):
        return (), _digits_of(part, field)
    if isinstance(part, Iterator):
        raise _not_json(field, f"a {_kind(part)} yields its items only once, and may never end")
    return _inside(part), 0


def _inside(part: Any) -> Collection[Any]:
    for base, held in _READ.items():
        if isinstance(part, base):
            return held(part)
    if is_dataclass(part) and not isinstance(part, type):
        return [getattr(part, each.name, None) for each in fields(part)]
    return ()


def _held_by_dict(part: dict[Any, Any]) -> tuple[Collection[Any], int]:
    try:
        return dict.values(part), sum(map(str.__len__, dict.keys(part)))
    except TypeError:  # a key is not text
        return [*dict.keys(part), *dict.values(part)], 0


_READ: Mapping[Any, Callable[[Any], Collection[Any]]] = {
    dict: dict.values,
    list: lambda part: [*list.__iter__(part)],
    tuple: lambda part: [*tuple.__iter__(part)],
    set: lambda part: [*set.__iter__(part)],
    frozenset: lambda part: [*frozenset.__iter__(part)],
    BaseModel: lambda part: [*part.__dict__.values(), *(part.__pydantic_extra__ or {}).values()],
    Enum: lambda part: (part.value,),
}


def _kind(value: Any) -> str:
    return str(type.__getattribute__(type(value), "__name__"))[:100]


_READ_AS_TEXT = (bytes, bytearray, IPv4Network, IPv6Network)
"""Iterables that are no arrays."""
_ARRAYS = frozenset({list, tuple})
_SECRETS = (Secret, SecretStr, SecretBytes)
_SEQUENCES = frozenset({list, tuple, set, frozenset})
_SCALARS = frozenset({float, bool, type(None)})
_TEXT = frozenset({str})
_NULL = b"null"
_BACKSLASH = ord("\\")
"""A single byte is found much faster than several."""
_WORD = 2**63
_BITS_PER_DIGIT = 4
"""An upper bound, by which long integers count as text."""
_INTEGER_LIMIT = 10**MAX_INTEGER_DIGITS


def _is_suspicious(value: bytes) -> bool:
    """Tell whether a value may hold something to repair or refuse; cheap, with false positives.

    A value has at least as many brackets as it is deep, and at least as many bytes as its integers have
    digits.
    """
    return (
        (_BACKSLASH in value and b"\\u0000" in value)
        or value.count(b"{") + value.count(b"[") > MAX_DEPTH
        or len(value) > MAX_INTEGER_DIGITS
    )


def _has_text_keys(output: Any) -> bool:
    """Tell whether all keys in an output are text, as far as it consists of dicts, lists and tuples;
    false for any other value that may have keys. An encoder would write two keys that are the same as
    text one after the other."""
    stack = [output]
    while stack:
        part = stack.pop()
        kind = type(part)
        if kind is str or kind is int or kind in _SCALARS:
            continue
        if kind is dict:
            if not _TEXT.issuperset(map(type, part)):
                return False
            stack += part.values()
        elif kind in _ARRAYS:
            stack += part
        else:
            return False
    return True


def _json(value: Any) -> bytes:
    return _NULL if value is None else to_json(value, inf_nan_mode="null")


def _assembled(finished: FinishedAttempt, output_json: bytes, error_json: bytes) -> bytes:
    finished.output = NULL if output_json is _NULL else Raw(output_json)
    finished.error = NULL if error_json is _NULL else Raw(error_json)
    return write(finished)


def _repaired(finished: FinishedAttempt, output: Any, error: ErrorInfo | None) -> bytes:
    if error is not None:
        error = ErrorInfo.model_validate(plain(error, "error"))
    return written(finished, plain(output), error)


def _whole_text(text: str) -> str:
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def _converted(value: Any, field: str, depth: int, items: _Items) -> Any:
    if items.hides(value):
        raise _not_json(
            field, f"a {_kind(value)} is not stored; return the name under which to look it up"
        )
    if items.form.own_names and is_dataclass(value) and not isinstance(value, type):
        return _plain(contents(value, items.form), field, depth, items)
    try:
        converted = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise _not_json(field, str(error)) from None
    if type(converted) is type(value):
        raise _not_json(field, f"a {_kind(value)} is not JSON")
    return _plain(converted, field, depth, items)


def _not_json(field: str, reason: str) -> OutputNotJson:
    return OutputNotJson(field=_whole_text(field), reason=f"at `{_whole_text(field)}`, {reason}")
