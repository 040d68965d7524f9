"""Our check of schemas tells what the `jsonschema` package tells, on generated schemas and values."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hocket.schemas.json_schema.schema import compile_schema

names = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.5]),
    st.text("ab1", max_size=3),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)
kinds = ["array", "boolean", "integer", "null", "number", "object", "string"]
counts = st.integers(0, 3)


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(names, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(
                st.sampled_from(kinds),
                st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True),
            ),
            "enum": st.lists(scalars, max_size=3),
            "const": values,
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": counts,
            "maxLength": counts,
            "pattern": st.sampled_from(["^a", "b$", "^[ab]+$", "1"]),
            "minItems": counts,
            "maxItems": counts,
            "uniqueItems": st.booleans(),
            "minProperties": counts,
            "maxProperties": counts,
            "required": st.lists(names, max_size=2, unique=True),
            "dependentRequired": st.dictionaries(
                names, st.lists(names, max_size=2, unique=True), max_size=2
            ),
            "properties": named,
            "patternProperties": st.dictionaries(
                st.sampled_from(["^a", "[bc]"]), inner, max_size=2
            ),
            "additionalProperties": inner,
            "propertyNames": inner,
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": named,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        },
    ).map(_few)


def _few(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(list(schema.items())[:4])


schemas = st.recursive(
    st.one_of(st.booleans(), st.sampled_from([{}, {"type": "integer"}, {"$ref": "#/$defs/d"}])),
    _keywords,
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(schemas, st.lists(values, min_size=1, max_size=4))
def test_a_generated_schema_allows_the_same_values(schema: Any, some: list[Any]) -> None:
    whole = schema if isinstance(schema, bool) else {**schema, "$defs": {"d": {"type": "string"}}}
    ours, theirs = compile_schema(whole, "schema"), Draft202012Validator(whole)
    for value in some:
        assert (ours.fault(value) is None) == theirs.is_valid(value), (whole, value)
