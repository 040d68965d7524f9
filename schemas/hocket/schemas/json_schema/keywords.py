"""The keywords of JSON Schema, each a function of a meter and a value that returns the first fault.

Messages are in the words of the `jsonschema` package. A node pays for its keywords; what looks at a
whole text or list pays for that too, and how deep nodes call each other is bounded.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Protocol

from hocket.schemas.json_schema.faults import Fault, shown
from hocket.schemas.json_schema.patterns import Pattern, compile_pattern
from hocket.schemas.templates.budget import Meter, Refused

MAX_CHECK_DEPTH = 150
"""How deep the parts of a schema may call each other while a value is checked."""

Check = Callable[[Meter, Any], Fault | None]
NODE_PRICE = 6


class Node:
    """A schema within a schema; its checks are set when all of it has been read."""

    __slots__ = ("allows", "checks", "price", "raw")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.checks: tuple[Check, ...] = ()
        self.price = NODE_PRICE
        self.allows = raw is not False

    def check(self, meter: Meter, value: Any) -> Fault | None:
        """Return the first fault of a value."""
        meter.spend(self.price)
        if not self.allows:
            return Fault(lambda: f"False schema does not allow {shown(value)}")
        meter.depth += 1
        if meter.depth > MAX_CHECK_DEPTH:
            raise Refused("its references call each other too deep", "Write a flatter schema.")
        for check in self.checks:
            fault = check(meter, value)
            if fault is not None:
                meter.depth -= 1
                return fault
        meter.depth -= 1
        return None


class Reader(Protocol):
    """What reads the schemas below a keyword."""

    def node(self, raw: Any, *place: str | int) -> Node: ...

    def reference(self, text: str) -> Node: ...


Keyword = Callable[[Reader, Any, Mapping[str, Any]], Check | None]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list | tuple),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": is_number,
    "object": lambda value: isinstance(value, Mapping),
    "string": lambda value: isinstance(value, str),
}


def canonical(meter: Meter, value: Any) -> Any:
    """Return what is equal for values that JSON takes for equal: `1` and `1.0`, not `1` and `true`."""
    meter.spend(8)
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, str):
        meter.read(len(value))
        return value
    if isinstance(value, Mapping):
        meter.make(80 * len(value))
        meter.spend(20 + 4 * len(value))
        return frozenset((key, canonical(meter, part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        meter.make(60 + 8 * len(value))
        meter.spend(20)
        return ("list", *(canonical(meter, part) for part in value))
    return value


# ---- any value ------------------------------------------------------------------------------


def _type(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    names = [given] if isinstance(given, str) else list(given)
    tests = [_TYPES[name] for name in names]
    said = ", ".join(repr(name) for name in names)
    first = tests[0]

    def one(meter: Meter, value: Any) -> Fault | None:
        if first(value):
            return None
        return Fault(lambda: f"{shown(value)} is not of type {said}")

    def several(meter: Meter, value: Any) -> Fault | None:
        if any(test(value) for test in tests):
            return None
        return Fault(lambda: f"{shown(value)} is not of type {said}")

    return one if len(tests) == 1 else several


def _enum(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    known = {canonical(Meter(), value) for value in given}

    def check(meter: Meter, value: Any) -> Fault | None:
        if canonical(meter, value) in known:
            return None
        return Fault(lambda: f"{shown(value)} is not one of {shown(given)}")

    return check


def _const(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    known = canonical(Meter(), given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if canonical(meter, value) == known:
            return None
        return Fault(lambda: f"{shown(given)} was expected")

    return check


# ---- numbers --------------------------------------------------------------------------------


def _bound(breaks: Callable[[Any, Any], bool], says: str) -> Keyword:
    def keyword(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
        def check(meter: Meter, value: Any) -> Fault | None:
            if is_number(value) and breaks(value, given):
                return Fault(lambda: says.format(shown(value), shown(given)))
            return None

        return check

    return keyword


def _multiple_of(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if is_number(value) and not _is_multiple(value, given):
            return Fault(lambda: f"{shown(value)} is not a multiple of {shown(given)}")
        return None

    return check


def _is_multiple(value: Any, of: Any) -> bool:
    if not isinstance(of, float):
        return bool(value % of == 0)
    try:
        quotient = value / of
        return bool(int(quotient) == quotient)
    except OverflowError:
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return (Fraction(value) / Fraction(of)).denominator == 1


# ---- texts ----------------------------------------------------------------------------------


def _sized(kind: Any, breaks: Callable[[int, Any], bool], says: Callable[[Any], str]) -> Keyword:
    def keyword(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
        said = says(given)

        def check(meter: Meter, value: Any) -> Fault | None:
            if isinstance(value, kind) and breaks(len(value), given):
                return Fault(lambda: f"{shown(value)} {said}")
            return None

        return check

    return keyword


def _pattern(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    pattern = compile_pattern(given)

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, str) and not pattern.found_in(meter, value):
            return Fault(lambda: f"{shown(value)} does not match {given!r}")
        return None

    return check


# ---- lists ----------------------------------------------------------------------------------


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


def _unique_items(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check | None:
    if not given:
        return None

    def check(meter: Meter, value: Any) -> Fault | None:
        if not isinstance(value, list | tuple):
            return None
        meter.make(80 * len(value))
        if len({canonical(meter, item) for item in value}) == len(value):
            return None
        return Fault(lambda: f"{shown(value)} has non-unique elements")

    return check


# ---- objects --------------------------------------------------------------------------------


def _required(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            meter.spend(len(given))
            for name in given:
                if name not in value:
                    return Fault(lambda name=name: f"{name!r} is a required property")  # type: ignore[misc]
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
    nodes = [(compile_pattern(text), reader.node(one, text)) for text, one in given.items()]

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
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
    patterns = [compile_pattern(text) for text in schema.get("patternProperties", ())]

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


def _dependent_required(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
            for name, needs in given.items():
                meter.spend(len(needs) + 1)
                missing = [need for need in needs if name in value and need not in value]
                if missing:
                    return Fault(
                        lambda one=missing[0], of=name: f"{one!r} is a dependency of {of!r}"  # type: ignore[misc]
                    )
        return None

    return check


# ---- schemas of the same value --------------------------------------------------------------


def _dependent_schemas(reader: Reader, given: Any, schema: Mapping[str, Any]) -> Check:
    nodes = {name: reader.node(one, name) for name, one in given.items()}

    def check(meter: Meter, value: Any) -> Fault | None:
        if isinstance(value, Mapping):
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


_TEXT, _LIST, _OBJECT = str, (list, tuple), Mapping

KEYWORDS: dict[str, Keyword] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(
        lambda value, least: bool(value < least), "{} is less than the minimum of {}"
    ),
    "maximum": _bound(
        lambda value, most: bool(value > most), "{} is greater than the maximum of {}"
    ),
    "exclusiveMinimum": _bound(
        lambda value, least: bool(value <= least), "{} is less than or equal to the minimum of {}"
    ),
    "exclusiveMaximum": _bound(
        lambda value, most: bool(value >= most), "{} is greater than or equal to the maximum of {}"
    ),
    "multipleOf": _multiple_of,
    "minLength": _sized(
        _TEXT,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "is too short",
    ),
    "maxLength": _sized(
        _TEXT,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "is too long",
    ),
    "pattern": _pattern,
    "minItems": _sized(
        _LIST,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "is too short",
    ),
    "maxItems": _sized(
        _LIST,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "is too long",
    ),
    "uniqueItems": _unique_items,
    "minProperties": _sized(
        _OBJECT,
        lambda n, least: n < least,
        lambda n: "should be non-empty" if n == 1 else "does not have enough properties",
    ),
    "maxProperties": _sized(
        _OBJECT,
        lambda n, most: n > most,
        lambda n: "is expected to be empty" if n == 0 else "has too many properties",
    ),
    "required": _required,
    "dependentRequired": _dependent_required,
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
"""In the order in which they are looked at: what the value itself breaks comes before what is in it."""
