"""Applies the `default`s of a pipeline's input schema to fields that a task leaves out.

Defaults are taken from the `properties` of the schema, and of nested objects: those that the input has,
and those that are defaults themselves. So an input that has its defaults gets no others when they are
applied again. `$ref`, `allOf` and the like are not followed, so that never more is added than the schema
itself contains.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hocket.schemas.json_schema.schema import compile_schema

_MAX_DEPTH = 32
_CURE = "Correct the default, or what the schema requires."


def with_defaults(schema: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return an input with the defaults of its schema; the same object if nothing is missing."""
    filled = _filled(schema, value, 0)
    assert isinstance(filled, dict)
    return filled


def check_defaults(schema: Mapping[str, Any], field: str) -> None:
    """Raise InvalidInput for a default that its own schema refuses."""
    defaults = _filled(schema, {}, 0)
    if defaults:
        shared = ("$schema", "$id", "$anchor", "$defs", "definitions", "properties")
        part = {name: schema[name] for name in shared if name in schema}
        compile_schema(part, field).check(defaults, f"{field}.default", _CURE)


def _filled(schema: object, value: object, depth: int) -> object:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not (isinstance(properties, Mapping) and isinstance(value, dict)) or depth > _MAX_DEPTH:
        return value
    found = value
    for name, part in properties.items():
        if name not in value:
            if not (isinstance(part, Mapping) and "default" in part):
                continue
            new: object = _filled(part, deepcopy(part["default"]), depth + 1)
        else:
            new = _filled(part, value[name], depth + 1)
            if new is value[name]:
                continue
        if found is value:
            found = dict(value)
        found[name] = new
    return found
