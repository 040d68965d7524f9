"""The input of a run as it can be sent again: without the defaults that its pipeline adds anyway.

Each value is compared with its default once, the innermost first, so the time that this takes grows with
the input and the schema, and no faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 32
"""Defaults nested deeper than this are left where they are: a pipeline does not add them."""


def without_defaults(schema: Mapping[str, Any], run_input: dict[str, Any]) -> dict[str, Any]:
    """Return an input without the fields that `with_defaults` (`input_defaults.py`) adds to it again,
    with the same values."""
    bare = _part(schema, run_input, 0).bare
    assert isinstance(bare, dict)
    return bare


@dataclass(frozen=True, slots=True)
class _Part:
    """A value of an input: as it can be sent, whether it is the default of its place, and its fields
    that the schema has properties for."""

    bare: Any
    is_default: bool
    fields: "Mapping[str, _Part]"


_NO_FIELDS: Mapping[str, _Part] = {}


def _part(schema: object, value: object, depth: int) -> _Part:
    if not isinstance(schema, Mapping):
        return _Part(value, False, _NO_FIELDS)
    properties, bare, fields = schema.get("properties"), value, _NO_FIELDS
    if isinstance(properties, Mapping) and isinstance(value, dict) and depth < MAX_DEPTH:
        fields = {
            name: _part(part, value[name], depth + 1)
            for name, part in properties.items()
            if name in value
        }
        bare = {
            name: fields[name].bare if name in fields else field
            for name, field in value.items()
            if name not in fields or not fields[name].is_default
        }
    is_default = "default" in schema and _is_filled(value, schema["default"], fields)
    return _Part(bare, is_default, fields)


def _is_filled(value: object, given: object, fields: Mapping[str, _Part]) -> bool:
    """Tell whether a value with these fields is `given` with the defaults of its fields."""
    if not (fields and isinstance(value, dict) and isinstance(given, dict)):
        return _is_same(value, given)
    if not given.keys() <= value.keys():
        return False
    for name, field in value.items():
        part = fields.get(name)
        if name not in given:
            is_known = part is not None and part.is_default
        else:
            is_known = _is_filled(field, given[name], _NO_FIELDS if part is None else part.fields)
        if not is_known:
            return False
    return True


def _is_same(one: object, other: object) -> bool:
    """Tell whether two JSON values have the same text, but for the order of fields: 1, 1.0 and true
    differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(_is_same(part, other[name]) for name, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        return all(_is_same(*parts) for parts in zip(one, other, strict=True))
    if isinstance(one, float):
        return repr(one) == repr(other)  # 0.0 and -0.0 differ
    return one == other
