"""`unevaluatedProperties` and `unevaluatedItems`: the parts of a value that no other keyword covers."""

from collections.abc import Mapping
from typing import Any

from hocket.schemas.json_schema.applicators import additional
from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.nodes import Check, Node, Reader
from hocket.schemas.templates.budget import Meter


def unevaluated_properties(reader: Reader, given: Any, own: Node) -> Check:
    """Return the check of `unevaluatedProperties`."""
    node = reader.node(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, Mapping):
            return None
        seen = _properties(reader, meter, own, value)
        extras = [key for key in value if key not in seen]
        wrong = [key for key in extras if node.check(meter, value[key]) is not None]
        if not wrong:
            return None
        return Fault(lambda: _unexpected("properties", sorted(wrong)))

    return check


def unevaluated_items(reader: Reader, given: Any, own: Node) -> Check:
    """Return the check of `unevaluatedItems`."""
    node = reader.node(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, list | tuple):
            return None
        seen = _items(reader, meter, own, value)
        wrong = [
            value[place]
            for place in range(len(value))
            if place not in seen and node.check(meter, value[place]) is not None
        ]
        if not wrong:
            return None
        return Fault(lambda: _unexpected("items", wrong))

    return check


def _unexpected(parts: str, wrong: list[Any]) -> str:
    said = ", ".join(shown(one) for one in wrong[:20])
    verb = "was" if len(wrong) == 1 else "were"
    return f"Unevaluated {parts} are not allowed ({said} {verb} unexpected)"


def _properties(reader: Reader, meter: Meter, node: Node, value: Mapping[str, Any]) -> set[str]:
    schema = node.raw
    if not isinstance(schema, Mapping):
        return set()
    meter.spend(20 + len(value))
    meter.make(100 * len(value))
    if "additionalProperties" in schema:
        return set(value)
    named, matched = schema.get("properties", ()), schema.get("patternProperties", ())
    meter.spend(len(named) + 4 * len(matched))
    seen = {key for key in named if key in value}
    patterns = [reader.patterns.pattern(text) for text in matched]
    if patterns:
        seen |= set(value) - set(additional(meter, value, (), patterns))
    for inner in _valid_in_place(reader, meter, node, value):
        if "unevaluatedProperties" in _mapping(inner):
            return set(value)
        seen |= _properties(reader, meter, inner, value)
    return seen


def _items(reader: Reader, meter: Meter, node: Node, value: Any) -> set[int]:
    schema = node.raw
    if not isinstance(schema, Mapping):
        return set()
    meter.spend(20 + len(value))
    meter.make(60 * len(value))
    if "items" in schema:
        return set(range(len(value)))
    seen = set(range(min(len(schema.get("prefixItems", ())), len(value))))
    if "contains" in schema:
        inner = reader.node(schema["contains"])
        seen |= {i for i, item in enumerate(value) if inner.check(meter, item) is None}
    for inner in _valid_in_place(reader, meter, node, value):
        if "unevaluatedItems" in _mapping(inner):
            return set(range(len(value)))
        seen |= _items(reader, meter, inner, value)
    return seen


def _mapping(node: Node) -> Mapping[str, Any]:
    return node.raw if isinstance(node.raw, Mapping) else {}


def _valid_in_place(reader: Reader, meter: Meter, node: Node, value: Any) -> list[Node]:
    """Return the schemas of the same value that hold; the parts that they cover count as evaluated."""
    schema = node.raw
    found: list[Node] = []
    dependent = schema.get("dependentSchemas", {})
    meter.spend(len(dependent) + len(schema.get("$ref", "")))
    if "$ref" in schema:
        found.append(reader.reference(schema["$ref"]))
    for keyword in ("allOf", "anyOf", "oneOf"):
        found += [reader.node(one) for one in schema.get(keyword, ())]
    found += [reader.node(one) for name, one in dependent.items() if name in value]
    if "if" in schema:
        test = reader.node(schema["if"])
        holds = test.check(meter, value) is None
        found += [test] if holds else []
        branch = "then" if holds else "else"
        found += [reader.node(schema[branch])] if branch in schema else []
    return [one for one in found if one.check(meter, value) is None]
