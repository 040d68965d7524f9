"""Pipeline files: YAML without its surprises, and values that every station can carry."""

import json

import pytest

from hocket.schemas.checks.plain_json import MAX_DEPTH, parse_json
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import parse_document


def test_on_is_a_key_and_a_date_is_text() -> None:
    text = "retry:\n  on: [timeout]\nday: 2026-05-04\nat: 12:30\nzip: 010\nflag: no\n"

    assert parse_document(text) == {
        "retry": {"on": ["timeout"]},
        "day": "2026-05-04",
        "at": "12:30",
        "zip": "010",
        "flag": "no",
    }


def test_numbers_booleans_and_null_are_as_in_json() -> None:
    text = "a: 1\nb: -2.5\nc: 1e3\nd: true\ne: null\nf: ~\n"

    assert parse_document(text) == {"a": 1, "b": -2.5, "c": 1000.0, "d": True, "e": None, "f": None}


def test_json_with_tabs_is_read_too() -> None:
    assert parse_document(b'{\n\t"pipeline": "x"}') == {"pipeline": "x"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2\n", "line 2, column 1: the key `a` is used twice"),
        ("a: [\n", "line 2, column 1"),
        ("? [1]\n: 2\n", "a key is not a word"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("[" * 3_000, "it nests too deep"),
        ('a: "\\0"\n', "U+0000"),
        ("1: 2\n", "the key 1 is not text"),
        ("a: !!timestamp 99999-01-01\n", "a value does not match its tag"),
        ("a: !!int ''\n", "a value does not match its tag"),
        ("a: !!float '_'\n", "a value does not match its tag"),
        ("a: !!bool maybe\n", "a value does not match its tag"),
        ("a: !!set [x]\n", "a value does not match its tag"),
        ("a: !!map [x]\n", "a value does not match its tag"),
        ("a: !!int 1" + ":59" * 300_000, "line 1, column 4: a number has `:` in it"),
        ("a: !!float 1" + ":59" * 300, "a number has `:` in it"),
        ("? !!int 0x" + "f" * 9_000 + "\n: 1\n", "an integer has more than 1000 digits"),
        ("".join(f"%TAG !a{i}! x:{i}\n" for i in range(20_000)) + "---\na: 1\n", "directives"),
        ("".join(f"%TAG !a{i}! x:{i}\u2028" for i in range(11)) + "---\na: 1\n", "directives"),
    ],
)
def test_what_is_not_a_document_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match="document") as refused:
        parse_document(text)

    assert reason in str(refused.value)


def test_aliases_cannot_make_a_small_file_into_a_huge_value() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]

    with pytest.raises(InvalidInput, match="counting aliases each time"):
        parse_document("\n".join(lines))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": 1e999}', "not a finite number"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a": "\\u0000"}', "U+0000"),
        (b"[" * 100_000, "nests deeper"),
        (b'{"a": ' + b"9" * 2_000 + b"}", "more than 1000 digits"),
    ],
)
def test_what_json_postgres_and_nats_cannot_all_carry_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_json(body)

    assert reason in str(refused.value)


def test_the_place_of_a_bad_value_is_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_json(b'{"a": [1, {"b": "\\u0000"}]}')

    assert refused.value.fields["field"] == "input.a.1.b"


def test_a_value_at_the_depth_limit_is_carried() -> None:
    body = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    assert parse_json(body) == json.loads(body)


def test_what_is_wrong_in_json_is_named_by_its_place() -> None:
    with pytest.raises(InvalidInput, match=r"\(document\)\.a.*surrogate"):
        parse_document('{"a": "\\ud800"}')


def test_merged_keys_cannot_either() -> None:
    keys = ", ".join(f"k{i}: 1" for i in range(100))
    text = f"a: &a {{{keys}}}\nb: &b {{<<: [{', '.join(['*a'] * 500)}]}}\n"

    with pytest.raises(InvalidInput, match="it merges more keys"):
        parse_document(text + f"c: {{<<: [{', '.join(['*b'] * 50)}]}}\n")

    links = [f"k{i}: &k{i} {{<<: *k{i - 1}, x{i}: 1}}" for i in range(1, 600)]
    with pytest.raises(InvalidInput, match="it merges more keys"):
        parse_document("\n".join(["k0: &k0 {x0: 1}", *links]))


def test_what_is_merged_stands_behind_a_mappings_own_keys() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {<<: *b}\n"

    made = parse_document(text)

    assert made["c"] == {"x": 3, "y": 1, "z": 2}
    assert made["d"] == {"y": 2, "z": 2}


def test_what_nests_deep_is_refused_before_it_takes_the_square_of_its_length() -> None:
    with pytest.raises(InvalidInput, match="it nests too deep"):
        parse_document("[" * 900_000)


@pytest.mark.parametrize(
    "line",
    [
        "x: {{ input.x }}",
        "x: {{ input.x }} and more",
        "x: {{ input.x }} > 3",
        "x: {y: {{ input.x }} }",
        "x: {{ nodes['a'].output }}",
        "- {{ input.x }}",
    ],
)
def test_a_template_without_quotes_is_told_to_get_them(line: str) -> None:
    for text in (f"a:\n  {line}\n", f"a:\r\n  {line}\r\n".encode()):
        with pytest.raises(InvalidInput) as refused:
            parse_document(text)
        assert refused.value.fields["reason"].startswith("line 2, ")
        assert refused.value.fields["cure"] == 'Put the template in quotes: `NAME: "{{ ... }}"`.'


@pytest.mark.parametrize("text", ['a: "{{ x }}" b\n', "a: '{{ x }}' b\n", "a: [ # {{ x }}\n"])
def test_a_template_in_quotes_or_a_comment_is_not_the_fault(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_document(text)
    assert refused.value.fields["cure"].startswith("Write YAML or JSON;")


def test_a_tab_is_told_to_be_spaces() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_document("nodes:\n\ta: {type: python}\n")
    assert refused.value.fields["cure"] == "Indent with spaces, not with tabs."
