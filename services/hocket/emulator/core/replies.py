"""What the engine says: meaningless words, the user's own words, JSON matching a schema, or a tool
call.

Deterministic: the same request gets the same reply.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hocket.emulator.core.tokens import CHARS_PER_TOKEN

MAX_DEPTH = 16
MAX_ITEMS = 100
_WORDS = "ore sea tin rye elm fog ink jay kit lea mud net oak pen rod sun tea urn vat wax yew zinc"
_SYLLABLES = tuple(word[:3] for word in _WORDS.split())


def words(seed: str, tokens: int) -> str:
    """Return a text of exactly `tokens` tokens."""
    first = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=4).digest())
    chosen = (_SYLLABLES[(first + 7 * place) % len(_SYLLABLES)] for place in range(tokens))
    text = " ".join(chosen) + "."
    assert len(text) == tokens * CHARS_PER_TOKEN
    return text


def json_of(schema: Any) -> str:
    """Return the smallest plausible JSON that matches a schema."""
    return json.dumps(_value(schema, schema, MAX_DEPTH))


def _value(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return None
    if "const" in schema:
        return schema["const"]
    for field in ("enum", "examples"):
        if isinstance(schema.get(field), list) and schema[field]:
            return schema[field][0]
    if isinstance(reference := schema.get("$ref"), str):
        return _value(_referenced(reference, root), root, depth - 1)
    for field in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(field), list) and schema[field]:
            return _value(schema[field][0], root, depth - 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, root, depth)
    if kind == "string":
        least = schema.get("minLength", 0)
        return "ore".ljust(min(least, 10_000) if isinstance(least, int) else 0, "-")
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return False if kind == "boolean" else None


def _array(schema: Mapping[str, Any], root: Any, depth: int) -> list[Any]:
    least = schema.get("minItems", 0)
    count = min(least, MAX_ITEMS) if isinstance(least, int) else 0
    return [_value(schema.get("items", {}), root, depth - 1) for _ in range(count)]


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required", [])
    names = required if isinstance(required, list) else []
    return {name: _value(properties.get(name, {}), root, depth - 1) for name in names}


def _referenced(reference: str, root: Any) -> Any:
    """Return what `#/a/b` points to."""
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def vector(text: str, dimensions: int) -> list[float]:
    """Return a unit vector by feature hashing of the words, so texts that share words are close."""
    sums = [0.0] * dimensions
    for word in text.lower().split() or [""]:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        number = int.from_bytes(digest)
        sums[number % dimensions] += 1.0 if number >> 63 else -1.0
    length = math.sqrt(sum(value * value for value in sums))
    if not length:  # all words cancelled each other out
        sums[0], length = 1.0, 1.0
    return [value / length for value in sums]


def tool_arguments(tools: Sequence[Any], name: str | None) -> tuple[str, str] | None:
    """Return name and arguments of a call to the tool `name`, or to the first; None without one."""
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and name in (None, function.get("name")):
            return str(function.get("name", "")), json_of(function.get("parameters") or {})
    return None
