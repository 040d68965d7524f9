"""What the engine says: meaningless words, the user's own words, JSON matching a schema, or a tool
call.

Deterministic: the same request gets the same reply.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from typing import Any

from hocket.emulator.core.tokens import CHARS_PER_TOKEN

MAX_DEPTH = 16
MAX_ITEMS = 100
MAX_CHARS = 10_000
MAX_KINDS = 7
MAX_AMOUNT = 10**300
MAX_STEPS = 10_000
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
    """Return the smallest plausible JSON that matches a schema. Of alternatives it matches the first;
    `pattern` and `format` are not followed."""
    return json.dumps(_Values(schema).of([schema], MAX_DEPTH))


class _Values:
    """Makes values that match parts of a schema, in a bounded number of steps: values after those are
    null."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_STEPS

    def of(self, schemas: Sequence[Any], depth: int) -> Any:
        """Return a value that matches all the schemas."""
        parts = [part for schema in schemas for part in self._parts(schema, depth)]
        for part in parts:
            if "const" in part:
                return part["const"]
        for field in ("enum", "examples"):
            if values := next(filter(None, (_list(part, field) for part in parts)), None):
                return values[0]
        return self._of_kind(_kind(parts), parts, depth)

    def _of_kind(self, kind: str | None, parts: Sequence[Mapping[str, Any]], depth: int) -> Any:
        if kind == "object":
            return self._object(parts, depth)
        if kind == "array":
            items = [part["items"] for part in parts if "items" in part]
            least = max(_amounts(parts, "minItems"), default=0)
            return [self.of(items, depth - 1) for _ in range(min(math.ceil(least), MAX_ITEMS))]
        if kind == "string":
            least = max(_amounts(parts, "minLength"), default=0)
            most = min(_amounts(parts, "maxLength"), default=MAX_CHARS)
            return "ore".ljust(min(math.ceil(least), MAX_CHARS), "-")[: max(math.floor(most), 0)]
        if kind in ("integer", "number"):
            return _number(parts, whole=kind == "integer")
        return False if kind == "boolean" else None

    def _object(self, parts: Sequence[Mapping[str, Any]], depth: int) -> dict[str, Any]:
        required = chain.from_iterable(_list(part, "required") for part in parts)
        names = dict.fromkeys(n for n in islice(required, MAX_STEPS) if isinstance(n, str))
        return {name: self.of(self._named(name, parts), depth - 1) for name in names}

    def _named(self, name: str, parts: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return what the schemas of an object say of one of its properties."""
        self._left -= len(parts)
        if self._left <= 0:
            return []
        found = (part.get("properties") for part in parts)
        return [named[name] for named in found if isinstance(named, dict) and name in named]

    def _parts(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        """Yield a schema, and those that it refers to or combines."""
        self._left -= 1
        if not isinstance(schema, dict) or depth <= 0 or self._left <= 0:
            return
        yield schema
        others = [*_list(schema, "allOf"), *_list(schema, "anyOf")[:1], *_list(schema, "oneOf")[:1]]
        if isinstance(reference := schema.get("$ref"), str):
            others.append(_referenced(reference, self._root))
        for other in others:
            yield from self._parts(other, depth - 1)


def _kind(parts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the first type that all schemas allow; None if they name none."""
    kinds: list[str] = []
    for part in parts:
        named = _list(part, "type")[:MAX_KINDS] or [part.get("type")]
        allowed = [kind for kind in named if isinstance(kind, str)]
        if "number" in allowed:
            allowed.append("integer")
        kinds = [kind for kind in kinds if kind in allowed] or allowed or kinds
    if not kinds and any("properties" in part for part in parts):
        return "object"
    return kinds[0] if kinds else None


_Bound = tuple[Fraction, int] | None
"""A bound, with what an equal number must not be less, or greater, than; None if there is none."""


def _number(parts: Sequence[Mapping[str, Any]], *, whole: bool) -> int | float:
    """Return 0 if it is in bounds, otherwise the least number that is; without a lower bound, the
    greatest."""
    low: _Bound = max(_bounds(parts, "minimum", "exclusiveMinimum", 1), default=None)
    high: _Bound = min(_bounds(parts, "maximum", "exclusiveMaximum", -1), default=None)
    step = next((amount for amount in _amounts(parts, "multipleOf") if amount > 0), None)
    if whole:
        step = Fraction(1 if step is None else step.numerator)
    for value in _tried(low, high, step or Fraction(1)):
        if _is_within(value, low, high) and (step is None or value % step == 0):
            return int(value) if value.denominator == 1 else float(value)
    return 0


def _is_within(value: Fraction, low: _Bound, high: _Bound) -> bool:
    return (low is None or (value, 0) >= low) and (high is None or (value, 0) <= high)


def _bounds(
    parts: Sequence[Mapping[str, Any]], closed: str, opened: str, side: int
) -> list[tuple[Fraction, int]]:
    bounds = [(amount, 0) for amount in _amounts(parts, closed)]
    return bounds + [(amount, side) for amount in _amounts(parts, opened)]


def _tried(low: _Bound, high: _Bound, unit: Fraction) -> Iterator[Fraction]:
    """Yield the numbers of which one is in bounds if any is."""
    yield Fraction(0)
    if low is not None:
        yield low[0]
        yield from (math.ceil(low[0] / unit) * unit, math.floor(low[0] / unit + 1) * unit)
    if high is not None:
        yield high[0]
        yield from (math.floor(high[0] / unit) * unit, math.ceil(high[0] / unit - 1) * unit)
    if low is not None and high is not None:
        yield (low[0] + high[0]) / 2


def _amounts(parts: Sequence[Mapping[str, Any]], field: str) -> list[Fraction]:
    """Return the numbers that schemas give for a field, as they are written, except absurd ones."""
    found = [part.get(field) for part in parts]
    return [
        Fraction(str(value))
        for value in found
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= MAX_AMOUNT
    ]


def _list(schema: Mapping[str, Any], field: str) -> list[Any]:
    value = schema.get(field)
    return value if isinstance(value, list) else []


def _referenced(reference: str, root: Any) -> Any:
    """Return what `#` or `#/a/b` points to."""
    if not reference.startswith("#"):
        return None
    found = root
    for part in reference.split("/")[1:]:
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
