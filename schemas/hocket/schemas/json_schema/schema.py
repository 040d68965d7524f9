"""Compiled schemas: read once, with references resolved within the schema; values are checked in counted
steps.

`compile_schema` is the only entry: what it returns can check any value within its budget, and its
refusals name the place in the schema and the cure.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from hocket.schemas.errors import InvalidInput
from hocket.schemas.json_schema.faults import Fault
from hocket.schemas.json_schema.keywords import KEYWORDS
from hocket.schemas.json_schema.metaschema import METASCHEMA
from hocket.schemas.json_schema.nodes import NODE_PRICE, Check, Node
from hocket.schemas.json_schema.patterns import Patterns
from hocket.schemas.json_schema.unevaluated import unevaluated_items, unevaluated_properties
from hocket.schemas.templates.budget import (
    CHECK_OPERATIONS_PER_PART,
    MAX_CHECK_OPERATIONS,
    MIN_CHECK_OPERATIONS,
    Meter,
    Refused,
)

MAX_SCHEMA_PARTS = 5_000
"""The most texts, numbers, lists and mappings in a schema."""
MAX_SCHEMA_DEPTH = 48
"""How deep a schema may nest."""

_CURE = "Write a JSON Schema (2020-12)."
_SIMPLER = (
    "Send a smaller value, or simplify the schema: fewer `anyOf`, `oneOf`, `$ref` and patterns."
)
_NOTHING: Final = object()
_LOCAL = "Refer to a place in the same schema: `#/$defs/NAME`."


class Schema:
    """A schema that checks values."""

    __slots__ = ("_least", "_root")

    def __init__(self, root: Node, least: int = MIN_CHECK_OPERATIONS) -> None:
        self._root = root
        self._least = least

    def check(self, value: Any, field: str, cure: str) -> None:
        """Raise InvalidInput for the first place below `field` where a value breaks the schema, or if
        the check takes too many operations."""
        try:
            fault = self.fault(value)
        except Refused as error:
            reason = f"it could not be checked against its schema: {error.reason}"
            raise InvalidInput(field=field, reason=reason, cure=_SIMPLER) from None
        if fault is not None:
            place = ".".join(str(part)[:100] for part in (field, *fault.path))
            raise InvalidInput(field=place, reason=fault.message[:300], cure=cure)

    def fault(self, value: Any) -> Fault | None:
        """Return the first violation of the schema, or None; raise Refused if the check takes too
        much."""
        return self._root.check(Meter(_operations_for(value, self._least)), value)


def _operations_for(value: Any, least: int) -> int:
    """Return how many operations the check of a value may take. Honest checks grow with the value; a
    malicious schema uses up any budget even for a small one."""
    operations, level = least, [value]
    while level and operations < MAX_CHECK_OPERATIONS:
        operations += CHECK_OPERATIONS_PER_PART * len(level)
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, list | tuple):
                below += one
        level = below
    return min(operations, MAX_CHECK_OPERATIONS)


def compile_schema(raw: Any, field: str, patterns: Patterns | None = None) -> Schema:
    """Return a compiled schema.

    Raises InvalidInput if it is not a schema, is too large, refers to something outside itself, or has
    patterns that do not run in linear time or exceed the room in `patterns`."""
    _check_size(raw, field)
    _metaschema().check(raw, field, _CURE)
    return _Reader(raw, field, patterns=patterns).read()


@cache
def _metaschema() -> Schema:
    return _Reader(METASCHEMA, "metaschema", least=MAX_CHECK_OPERATIONS).read()


def _check_size(raw: Any, field: str) -> None:
    if not isinstance(raw, Mapping | bool):
        raise InvalidInput(field=field, reason="it is not a schema", cure=_CURE)
    level: list[Any] = [raw]
    parts = depth = 0
    while level:
        depth += 1
        if depth > MAX_SCHEMA_DEPTH:
            reason = f"the schema nests deeper than {MAX_SCHEMA_DEPTH} levels"
            raise InvalidInput(field=field, reason=reason, cure="Use `$ref` and `$defs`.")
        below: list[Any] = []
        for one in level:
            parts += 1
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, list | tuple):
                below += one
        if parts + len(below) > MAX_SCHEMA_PARTS:
            reason = f"the schema has more than {MAX_SCHEMA_PARTS:,} values"
            raise InvalidInput(field=field, reason=reason, cure="Check less of the value.")
        level = below


class _Reader:
    """Reads a schema: each node once, resolving references to nodes of the same schema."""

    def __init__(
        self,
        raw: Any,
        field: str,
        *,
        least: int = MIN_CHECK_OPERATIONS,
        patterns: Patterns | None = None,
    ) -> None:
        self.patterns = patterns or Patterns()
        self._raw = raw
        self._field = field
        self._least = least
        self._nodes: dict[int, Node] = {}
        self._place: list[str | int] = []
        self._anchors = dict(_anchors(raw))
        self._unread: list[tuple[Node, tuple[str | int, ...]]] = []

    def read(self) -> Schema:
        try:
            root = self.node(self._raw)
            while self._unread:
                node, place = self._unread.pop()
                self._place = list(place)
                self._read(node)
        except Refused as error:
            raise self._wrong(error.reason, error.cure) from None
        cycle = _cycle(self, [node for node in self._nodes.values() if node.checks])
        if cycle is not None:
            raise self._wrong(f"`{cycle}` refers to itself for the same value", "Remove the cycle.")
        return Schema(root, self._least)

    def node(self, raw: Any, *place: str | int) -> Node:
        """Return the node of a schema at `place` below the keyword that is being read."""
        return self._node(raw, (*self._place, *place))

    def _node(self, raw: Any, place: tuple[str | int, ...]) -> Node:
        if not isinstance(raw, Mapping):
            return Node(raw)
        known = self._nodes.get(id(raw))
        if known is None:
            known = self._nodes[id(raw)] = Node(raw)
            self._unread.append((known, place))
        return known

    def _read(self, node: Node) -> None:
        raw = node.raw
        checks: list[Check] = []
        if "$dynamicRef" in raw:
            raise self._wrong("`$dynamicRef` is not available", "Use `$ref`.")
        for name, keyword in KEYWORDS.items():
            if name in raw:
                self._place.append(name)
                check = keyword(self, raw[name], raw)
                if check is not None:
                    checks.append(check)
                self._place.pop()
        if "unevaluatedProperties" in raw:
            checks.append(unevaluated_properties(self, raw["unevaluatedProperties"], node))
        if "unevaluatedItems" in raw:
            checks.append(unevaluated_items(self, raw["unevaluatedItems"], node))
        node.checks = tuple(checks)
        node.price = NODE_PRICE + 3 * len(checks)

    def reference(self, text: str) -> Node:
        """Return the node that a reference names; raise InvalidInput if there is none."""
        own = self._raw.get("$id") if isinstance(self._raw, Mapping) else None
        if own and text.startswith(own):
            text = text[len(own) :] or "#"
        if not text.startswith("#"):
            raise self._wrong(
                f"`{text[:200]}` is not in the schema, and no other schemas are loaded", _LOCAL
            )
        pointer = unquote(text[1:])
        if pointer and not pointer.startswith("/"):
            if pointer not in self._anchors:
                raise self._wrong(f"`{text[:200]}` is not in the schema", _LOCAL)
            return self._referred(self._anchors[pointer], (pointer,))
        found = self._pointed(pointer)
        if found is _NOTHING:
            raise self._wrong(f"`{text[:200]}` is not in the schema", _LOCAL)
        if not isinstance(found, Mapping | bool):
            raise self._wrong(f"`{text[:200]}` is not a schema", _LOCAL)
        return self._referred(found, tuple(pointer.split("/")[1:]))

    def _referred(self, raw: Any, place: tuple[str | int, ...]) -> Node:
        """Return the node of a part that a reference names. Below a keyword that JSON Schema does not
        know, it has not been checked with the whole."""
        if id(raw) not in self._nodes and self._raw is not METASCHEMA:
            _metaschema().check(raw, self._field, _CURE)
        return self._node(raw, place)

    def _pointed(self, pointer: str) -> Any:
        """Return the part of the schema that a JSON pointer names, or _NOTHING."""
        found: Any = self._raw
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                return _NOTHING
        return found

    def _wrong(self, reason: str, cure: str) -> InvalidInput:
        place = ".".join(str(part)[:100] for part in (self._field, *self._place))
        return InvalidInput(field=place, reason=reason, cure=cure)


def _anchors(raw: Any) -> Iterator[tuple[str, Any]]:
    waiting = [raw]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(one.get(keyword), str):
                    yield one[keyword], one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _cycle(reader: _Reader, nodes: list[Node]) -> str | None:
    """Return a reference that leads a schema back to itself without descending into the value."""
    done: set[int] = set()
    for start in nodes:
        path: list[tuple[Node, Iterator[tuple[str, Node]]]] = [(start, _in_place(reader, start))]
        open_ids = {id(start)}
        while path:
            node, rest = path[-1]
            if id(node) in done:
                path.pop()
                open_ids.discard(id(node))
                continue
            name, inner = next(rest, (None, None))
            if name is None or inner is None:
                path.pop()
                open_ids.discard(id(node))
                done.add(id(node))
            elif id(inner) in open_ids:
                return name
            elif id(inner) not in done:
                path.append((inner, _in_place(reader, inner)))
                open_ids.add(id(inner))
    return None


def _in_place(reader: _Reader, node: Node) -> Iterator[tuple[str, Node]]:
    raw = node.raw
    if not isinstance(raw, Mapping):
        return
    if "$ref" in raw:
        yield raw["$ref"], reader.reference(raw["$ref"])
    for keyword in ("allOf", "anyOf", "oneOf"):
        for one in raw.get(keyword, ()):
            yield keyword, reader.node(one)
    for keyword in ("not", "if", "then", "else"):
        if keyword in raw:
            yield keyword, reader.node(raw[keyword])
    for one in raw.get("dependentSchemas", {}).values():
        yield "dependentSchemas", reader.node(one)
