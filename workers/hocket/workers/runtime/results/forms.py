"""The forms in which models and dataclasses become JSON, by who reads them. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError


@dataclass(frozen=True, slots=True)
class Form:
    """How values are written. Those with `own_names` are used again by this worker's code: models have
    their fields' own names, dataclasses are read field by field, and secrets, of which JSON has only
    asterisks, are refused. Of a `round_trip`, computed fields are left out. `json_bytes` are written as
    their model has them in JSON, others as text. Sets have an order of their own, if it is not
    `set_order`, which differs between processes. `former` is as the release before wrote."""

    own_names: bool = False
    round_trip: bool = False
    json_bytes: bool = False
    set_order: bool = True
    former: bool = False


OUTPUT = Form()
"""As any reader has it: with aliases, and as a model is in JSON."""
KEPT = Form(own_names=True)
"""What a function without an annotation returned, for its handler."""
READ_BACK = Form(own_names=True, round_trip=True, json_bytes=True)
"""What is read as its annotation says."""
READ_BACK_FROM_TEXT = Form(own_names=True, round_trip=True)
"""The same of models that write their bytes in one way and read them in another."""
DIGEST = Form(own_names=True, json_bytes=True, set_order=False)
"""What a digest is made of."""
FORMER_DIGEST = Form(former=True)


def contents(value: Any, form: Form) -> Any:
    """Return the contents of a model, or of a dataclass, in a form."""
    if form.former:
        return value.model_dump()
    if not form.own_names:
        try:
            return value.model_dump(mode="json", by_alias=True)
        except _UNWRITABLE:  # half of a surrogate pair
            return value.model_dump(by_alias=True)
    options = {"by_alias": False, "round_trip": form.round_trip}
    if isinstance(value, BaseModel):
        dump: Any = value.model_dump
    elif (serializer := getattr(value, "__pydantic_serializer__", None)) is not None:
        dump = _dataclass_dump(value, serializer)
    else:
        return {one.name: getattr(value, one.name) for one in fields(value)}
    named = dump(mode="python", **options)
    if not form.json_bytes or not _has_bytes(named):
        return named
    try:
        return _with_bytes(named, dump(mode="json", **options))
    except _UNWRITABLE:
        return named


def keeps_bytes(given: Any, read: Any) -> bool:
    """Tell whether a value that was written and read again has the bytes that were given, wherever both
    have some."""
    if isinstance(given, _BYTES) and isinstance(read, _BYTES):
        return given == read
    given, read = _fields_of(given), _fields_of(read)
    if isinstance(given, Mapping) and isinstance(read, Mapping):
        return all(keeps_bytes(given[key], read[key]) for key in given.keys() & read.keys())
    if isinstance(given, _SETS) and isinstance(read, _SETS):
        return given == read or not _are_bytes((*given, *read))
    if _is_array(given) and _is_array(read):
        return all(map(keeps_bytes, given, read))
    return True


_BYTES = (bytes, bytearray)
_SETS = (set, frozenset)
_UNWRITABLE = (PydanticSerializationError, ValueError, TypeError)


def _dataclass_dump(value: Any, serializer: Any) -> Any:
    return lambda **options: serializer.to_python(value, **options)


def _fields_of(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.__dict__
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, *_BYTES))


def _are_bytes(values: Collection[Any]) -> bool:
    return len(values) > 0 and all(isinstance(one, _BYTES) for one in values)


def _has_bytes(dumped: Any) -> bool:
    """Tell whether the contents of a model have bytes; false if they have an iterator, which is refused
    and must not be used up before."""
    found, stack = False, [dumped]
    while stack:
        part = stack.pop()
        if isinstance(part, Iterator):
            return False
        if isinstance(part, _BYTES):
            found = True
        elif isinstance(part, Mapping):
            stack += (*part.keys(), *part.values())
        elif isinstance(part, Collection) and not isinstance(part, str):
            stack += part
    return found


def _with_bytes(named: Any, told: Any) -> Any:
    """Return the contents of a model with their bytes as its JSON tells them."""
    if isinstance(named, _BYTES):
        return told
    if isinstance(named, dict) and isinstance(told, dict) and len(named) == len(told):
        return dict(map(_pair_with_bytes, named.items(), told.items()))
    if isinstance(named, _SETS) and any(isinstance(one, _BYTES) for one in named):
        return frozenset(told)
    if _is_array(named) and isinstance(told, list) and len(named) == len(told):
        return [_with_bytes(*both) for both in zip(named, told, strict=True)]
    return named


def _pair_with_bytes(named: tuple[Any, Any], told: tuple[Any, Any]) -> tuple[Any, Any]:
    key = told[0] if isinstance(named[0], _BYTES) else named[0]
    return key, _with_bytes(named[1], told[1])
