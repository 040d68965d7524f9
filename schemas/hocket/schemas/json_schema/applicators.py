"""Keywords that apply other schemas to a value or its parts. Messages are worded as in the `jsonschema`
package."""

from collections.abc import Iterable, Mapping
from typing import Any

from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.nodes import Check, Keyword, Reader
from hocket.schemas.json_schema.patterns import Pattern
from hocket.schemas.templates.budget import Meter


def _items(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    node = reader.node(given)
    before = len(schema.get("prefixItems", ()))

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, list | tuple) or len(value) <= before:
            return None
        if given is False:
            more = len(value) - before
            return Fault(
                lambda: (
                    f"Expected at most {before} {'items' if before != 1 else 'item'} but found {more}"
                    f" extra: {shown(value[before:] if more != 1 else value[before])}"
                )
            )
        for index in range(before, len(value)):
            fault = node.check(meter, value[index])
            if fault is not None:
                return fault.below(index)
        return None

    return check


def _prefix_items(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = [reader.node(one, i) for i, one in enumerate(given)]

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, list | tuple):
            for index, (node, item) in enumerate(zip(nodes, value, strict=False)):
                fault = node.check(meter, item)
                if fault is not None:
                    return fault.below(index)
        return None

    return check


def _contains(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    node = reader.node(given)
    least, most = schema.get("minContains", 1), schema.get("maxContains")

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, list | tuple):
            return None
        found = sum(node.check(meter, item) is None for item in value)
        if most is not None and found > most:
            return Fault(lambda: f"Too many items match the given schema (expected at most {most})")
        if found < least and not found:
            return Fault(lambda: f"{shown(value)} does not contain items matching the given schema")
        if found < least:
            return Fault(
                lambda: (
                    "Too few items match the given schema (expected at least"
                    f" {least} but only {found} matched)"
                )
            )
        return None

    return check


def _properties(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = {name: reader.node(one, name) for name, one in given.items()}

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, Mapping):
            return None
        meter.spend(len(nodes))
        for name, node in nodes.items():
            if name in value:
                fault = node.check(meter, value[name])
                if fault is not None:
                    return fault.below(name)
        return None

    return check


def _pattern_properties(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = [(reader.patterns.pattern(text), reader.node(one, text)) for text, one in given.items()]

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            meter.spend(len(nodes))
            for pattern, node in nodes:
                for key, part in value.items():
                    if pattern.found_in(meter, key):
                        fault = node.check(meter, part)
                        if fault is not None:
                            return fault.below(key)
        return None

    return check


def additional(
    meter: Meter, value: Mapping[str, Any], known: Iterable[str], patterns: Iterable[Pattern]
) -> list[str]:
    """Return the keys that neither `properties` nor `patternProperties` name."""
    meter.spend(len(value))
    return [
        key
        for key in value
        if key not in known and not any(pattern.found_in(meter, key) for pattern in patterns)
    ]


def _additional_properties(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    node = reader.node(given)
    known = frozenset(schema.get("properties", ()))
    patterns = [reader.patterns.pattern(text) for text in schema.get("patternProperties", ())]

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, Mapping):
            return None
        extras = additional(meter, value, known, patterns)
        if given is False and extras:
            return Fault(lambda: _extra_properties(extras, patterns))
        for key in extras:
            fault = node.check(meter, value[key])
            if fault is not None:
                return fault.below(key)
        return None

    return check


def _extra_properties(extras: list[str], patterns: list[Pattern]) -> str:
    names = ", ".join(shown(key) for key in sorted(extras)[:20])
    if patterns:
        verb = "does" if len(extras) == 1 else "do"
        texts = ", ".join(repr(pattern.text) for pattern in patterns[:20])
        return f"{names} {verb} not match any of the regexes: {texts}"
    verb = "was" if len(extras) == 1 else "were"
    return f"Additional properties are not allowed ({names} {verb} unexpected)"


def _property_names(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    node = reader.node(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            for key in value:
                fault = node.check(meter, key)
                if fault is not None:
                    return fault
        return None

    return check


# ---- schemas of the same value --------------------------------------------------------------


def _dependent_schemas(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = {name: reader.node(one, name) for name, one in given.items()}

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            meter.spend(len(nodes))
            for name, node in nodes.items():
                if name in value and (fault := node.check(meter, value)) is not None:
                    return fault
        return None

    return check


def _reference(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    return reader.reference(given).check


def _all_of(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = [reader.node(one, i) for i, one in enumerate(given)]

    def check(meter: Meter, value: Any) -> Fault | None:
        for node in nodes:
            fault = node.check(meter, value)
            if fault is not None:
                return fault
        return None

    return check


def _any_of(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = [reader.node(one, i) for i, one in enumerate(given)]

    def check(meter: Meter, value: Any) -> Fault | None:
        if any(node.check(meter, value) is None for node in nodes):
            return None
        return Fault(lambda: f"{shown(value)} is not valid under any of the given schemas")

    return check


def _one_of(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = [reader.node(one, i) for i, one in enumerate(given)]

    def check(meter: Meter, value: Any) -> Fault | None:
        fits = [node.raw for node in nodes if node.check(meter, value) is None]
        if len(fits) == 1:
            return None
        if not fits:
            return Fault(lambda: f"{shown(value)} is not valid under any of the given schemas")
        return Fault(
            lambda: (
                f"{shown(value)} is valid under each of {', '.join(shown(one) for one in fits[:5])}"
            )
        )

    return check


def _not(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    node = reader.node(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if node.check(meter, value) is not None:
            return None
        return Fault(lambda: f"{shown(value)} should not be valid under {shown(given)}")

    return check


def _if(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    test = reader.node(given)
    then = reader.node(schema.get("then", True))
    otherwise = reader.node(schema.get("else", True))

    def check(meter: Meter, value: Any) -> Fault | None:
        return (then if test.check(meter, value) is None else otherwise).check(meter, value)

    return check


APPLICATORS: dict[str, Keyword] = {
    "additionalProperties": _additional_properties,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "prefixItems": _prefix_items,
    "items": _items,
    "contains": _contains,
    "$ref": _reference,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependentSchemas": _dependent_schemas,
}
