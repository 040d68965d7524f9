"""Which values are carried, by text and as values; what is not is named by its place."""

import json
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.schemas.checks.plain_json import (
    MAX_DEPTH,
    MAX_FIELD_CHARS,
    MAX_INTEGER_DIGITS,
    check_plain,
    parse_json,
)
from hocket.schemas.errors import InvalidInput

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
)


class Colour(StrEnum):
    RED = "red"


@given(PLAIN)
def test_what_is_carried_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "input", "the key `b` is used twice"),
        (b'{"a": 1, "\\u0061": 2}', "input", "the key `a` is used twice"),
        (b"\xef\xbb\xbf{}", "input", "it is not JSON"),
        ('{"a": 1}'.encode("utf-16"), "input", "it is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "input", "it is not UTF-8 (byte 7: 0xed)"),
        (b'{"a": "\xff"}', "input", "it is not UTF-8 (byte 7: 0xff)"),
        (b'{"a": ["\\ud800"]}', "input.a.0", "half of a surrogate pair"),
        (b'{"a": {"\\udc00": 1}}', "input.a", "half of a surrogate pair"),
        (b'{"a": "\\u0000"}', "input.a", "U+0000"),
        (b'{"a\\u0000": 1}', "input", "U+0000"),
        (b'{"a": "\x00"}', "input", "it is not JSON"),
        (b'{"a": 1e400}', "input.a", "not a finite number"),
        (b'{"a": [1, -1e400]}', "input.a.1", "not a finite number"),
        (b'{"a": NaN}', "input", "NaN is not a number"),
        (b'{"a": -Infinity}', "input", "-Infinity is not a number"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "input", "more than 1000 digits"),
        (b'{"a": ' + b"9" * 1_001 + b"}", "input.a", "more than 1000 digits"),
        (b"[" * 65 + b"]" * 65, "input" + ".0" * 64, "deeper than 64"),
        (b'{"a":' * 250 + b"1" + b"}" * 250, "input" + ".a" * 64, "deeper than 64"),
        (b"[" * 100_000 + b"]" * 100_000, "input", "deeper than 64"),
        (b"", "input", "it is not JSON"),
        (b"{} {}", "input", "it is not JSON"),
    ],
)
def test_what_is_not_carried_is_named(body: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_json(body)

    assert refused.value.fields["field"] == field
    assert reason in refused.value.fields["reason"]
    assert refused.value.fields["cure"]


def test_the_bounds_are_exact() -> None:
    depth = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    digits = "9" * MAX_INTEGER_DIGITS

    assert parse_json(depth) == json.loads(depth)
    assert parse_json(digits) == parse_json(f"[-{digits}]")[0] * -1 == int(digits)
    for integers in (f"[1, 9{digits}]", f"[1, -9{digits}]", f"[1, [2, 9{digits}]]"):
        with pytest.raises(InvalidInput, match="digits"):
            parse_json(integers)
    with pytest.raises(InvalidInput, match="more than 3 values"):
        parse_json("[1, 2, 3]", max_values=3)
    assert parse_json("[1, 2, {}]", max_values=4) == [1, 2, {}]
    with pytest.raises(InvalidInput, match="more than 3 values"):
        parse_json("[1, 2, {}]", max_values=3)


def test_the_name_of_a_place_has_a_bound_and_is_text() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_plain({"k" * 10_000: {"v": "\x00"}})

    assert len(refused.value.fields["field"]) == MAX_FIELD_CHARS


@pytest.mark.parametrize("value", [Colour.RED, {"a": (Colour.RED, True)}, [{"a": [None]}]])
def test_kinds_that_are_derived_from_plain_ones_are_carried(value: Any) -> None:
    check_plain(value)


@pytest.mark.parametrize("value", [b"x", {1: 2}, {"a": {1, 2}}, object(), [2j]])
def test_what_is_no_json_at_all_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        check_plain(value)


def test_a_derived_mapping_is_looked_into() -> None:
    class Mine(dict[str, Any]):
        pass

    with pytest.raises(InvalidInput, match=r"input\.a\.b"):
        check_plain(Mine(a=Mine(b="\x00")))
