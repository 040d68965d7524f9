"""The struct of a step takes what the contract takes, and tells the contract's errors, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from hocket.schemas.checks import bounded
from hocket.schemas.messages import Priority, StepRequested, encoded
from hocket.schemas.structs import steps
from hocket.schemas.structs.steps import RequestedStep, read_step

FIELDS: dict[str, Any] = {
    "run_id": "r0123456789abcdef01234567",
    "tenant": "t",
    "pipeline": "p",
    "version": 3,
    "step": "map[2].s",
    "node": "s",
    "type": "python",
    "attempt": 1,
    "input": {"text": "é\n", "n": [1, 2.5, None, True, {}]},
    "config": {"handler": "a:b"},
    "deadline_at_ms": 1_795_380_754_868.1267,
    "run_deadline_at_ms": 1_795_380_754_868.5,
    "slack_ms": -12.5,
    "timeout_ms": 60_000.0,
    "priority": Priority.STANDARD,
    "partition": 7,
    "epoch": 12,
    "budget_usd": "12.50",
    "budget_left_usd": "0.000001",
    "held_ms": 3.25,
    "start_by_at_ms": None,
    "dispatched_at_ms": 1_795_380_154_868.25,
    "capability": "0123456789abcdef0123456789abcdef",
}
BODY = encoded(StepRequested.model_validate(FIELDS))
EDGES: tuple[Any, ...] = (
    *(None, True, False, "", "1", "1.5", " 1", "1_0", "NaN", "-0.1", "1e3", "standard", "batch"),
    *(
        0,
        -1,
        1,
        1.0,
        1.5,
        -0.0,
        2**31 - 1,
        2**31,
        2**53,
        2**53 + 1,
        2**70,
        10**4_299,
        1e15,
        1e16,
        1e308,
    ),
    *(bounded.MAX_MOMENT_MS, bounded.MAX_MOMENT_MS + 1, bounded.MIN_MOMENT_MS - 1, 10**12, 10**13),
    *(
        "x" * 256,
        "x" * 257,
        "é" * 256,
        "x" * 2_400,
        "x" * 2_401,
        "a\x00b",
        "a\nb",
        "a\x7f",
        "a\u0085",
    ),
    *("😀", "\u200b", "9" * 40, "0." + "1" * 38, "0." + "1" * 41, [], {}, [1], {"a": {"b": []}}),
)
numbers = st.integers() | st.floats()
values = st.sampled_from(EDGES) | st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20),
    lambda parts: (
        st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=8), parts, max_size=4)
    ),
    max_leaves=8,
)
names = st.sampled_from([*StepRequested.model_fields, "unknown"])
cuts = st.integers(0, len(BODY))
JSON_PIECES = rb'" \ \ud800 \u0000 \u000a NaN - 0 1e400 [ } , null "type":1, /**/'.split()
OTHER_PIECES = (b"\xff", b"\xed\xa0\x80", b"\x7f", b" ", b"\x0b", b"\xef\xbb\xbf")
pieces = st.binary(max_size=4) | st.sampled_from((*JSON_PIECES, *OTHER_PIECES))


def outcome(read: Any, body: bytes) -> str:
    """Return what comes of a body, so that two readers can be compared."""
    try:
        step = read(body)
    except ValidationError as error:
        return repr(error.errors(include_url=False, include_context=False))
    message = step.contract() if isinstance(step, RequestedStep) else step
    return repr(message)


def check(body: bytes) -> None:
    assert outcome(read_step, body) == outcome(StepRequested.model_validate_json, body)


def test_every_field_with_every_value_at_an_edge() -> None:
    for name in [*StepRequested.model_fields, "unknown"]:
        for value in EDGES:
            check(json.dumps(FIELDS | {name: value}).encode())


@given(st.dictionaries(names, values, min_size=1, max_size=4), st.sets(names, max_size=3))
@example({"input": {"a": float("nan")}}, set())
def test_other_values_and_missing_fields(changes: dict[str, Any], missing: set[str]) -> None:
    fields = json.loads(BODY) | changes
    check(json.dumps({name: fields[name] for name in fields if name not in missing}).encode())


@given(st.lists(st.tuples(cuts, st.integers(0, 4), pieces), min_size=1, max_size=3))
def test_bytes_that_were_changed(edits: list[tuple[int, int, bytes]]) -> None:
    body = BODY
    for at, length, piece in edits:
        body = body[:at] + piece + body[at + length :]
    check(body)


@pytest.mark.parametrize("labels", [{"a\n": "b"}, {"a": "b\n"}, {"a": "b"}, {"\na": "b"}])
def test_a_label_that_ends_with_a_line_end(labels: dict[str, str]) -> None:
    check(json.dumps(FIELDS | {"labels": labels}).encode())


def test_a_field_that_nobody_knows_is_read_too() -> None:
    check(BODY[:-1] + b',"unknown":"\xff"}')


@given(names, values, names, values, st.booleans())
def test_fields_that_stand_twice(
    first: str, one: Any, second: str, other: Any, in_front: bool
) -> None:
    more = ",".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in ((first, one), (second, other)))
    fields = BODY[1:-1]
    check(b"{%b,%b}" % ((more.encode(), fields) if in_front else (fields, more.encode())))


@pytest.mark.parametrize("depth", [1, 63, 64, 190, 198, 199, 200, 201, 202, 203, 300, 3_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_inputs_however_deep(depth: int, begin: str, end: str) -> None:
    fields = json.dumps(json.loads(BODY) | {"input": "HERE"})
    check(fields.replace('"HERE"', begin * depth + "1" + end * depth).encode())


@pytest.mark.parametrize(
    "root",
    [
        {"run_id": "top", "budget_usd": "0.90", "seal": "0123456789abcdef0123456789abcdef"},
        {"run_id": "top", "budget_usd": "0.9", "unknown": 1},
        {"run_id": "top"},
        {"run_id": "a\nb", "budget_usd": "-1"},
        "top",
    ],
)
def test_the_budget_at_the_top_of_a_sub_runs_tree(root: Any) -> None:
    check(json.dumps(json.loads(BODY) | {"root_budget": root}).encode())


def test_what_coordinators_send_is_not_read_by_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "_read_by_contract", lambda body: pytest.fail("read slowly"))
    assert read_step(BODY).contract() == StepRequested.model_validate_json(BODY)


def test_the_struct_has_the_fields_of_the_contract_and_their_defaults() -> None:
    contract = {
        name: None if field.is_required() else (field.default,)
        for name, field in StepRequested.model_fields.items()
    }
    required = len(RequestedStep.__struct_fields__) - len(RequestedStep.__struct_defaults__)
    struct = dict.fromkeys(RequestedStep.__struct_fields__[:required]) | {
        name: (default,)
        for name, default in zip(
            RequestedStep.__struct_fields__[required:],
            RequestedStep.__struct_defaults__,
            strict=True,
        )
    }
    assert struct == contract
