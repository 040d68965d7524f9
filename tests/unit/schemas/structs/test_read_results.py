"""A log's results are read as the contract reads them, with the contract's errors, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hocket.schemas import messages
from hocket.schemas.messages import AttemptFinished, AttemptsFinished, Spend, encoded
from hocket.schemas.structs import read_results
from hocket.schemas.structs.read_results import MIN_LARGE_BYTES, read_log

FIELDS: dict[str, Any] = {
    "run_id": "r0123456789abcdef01234567",
    "step": "map[2].s",
    "attempt": 1,
    "output": {"text": "é", "n": [1, 2.5, None, True, {}]},
    "started_at_ms": 1_795_380_754_868.1267,
    "finished_at_ms": 1_795_380_754_968,
    "queued_at_ms": 1_795_380_754_768.5,
    "delivery": 1,
    "worker": "host-1234",
    "dispatched_at_ms": 1_795_380_154_868.25,
    "input_digest": "0123456789abcdef",
    "capability": "0123456789abcdef0123456789abcdef",
    "took": 3,
}
BODY = json.dumps(FIELDS).encode()
EDGES: tuple[Any, ...] = (
    *(None, True, False, "", "1", "1.5", "NaN", 0, -1, 1, 1.0, 1.5, -0.0, 2**31 - 1, 2**31, 2**53),
    *(2**70, 10**400, 1e15, 1e16, 1e308, 253_402_300_799_999, 253_402_300_800_000, -(10**14)),
    *("x" * 256, "x" * 257, "é" * 256, "x" * 2_400, "x" * 2_401, "a\x00b", "a\nb", "a\x7f"),
    *("a\u0085", "😀", "\u200b", [], {}, [1], {"a": {"b": []}}),
)
numbers = st.integers() | st.floats()
values = st.sampled_from(EDGES) | st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20),
    lambda parts: (
        st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=8), parts, max_size=4)
    ),
    max_leaves=8,
)
NAMES = [*AttemptFinished.model_fields, "unknown"]
names = st.sampled_from(NAMES)
PIECES = (*rb'" \ \ud800 \u0000 \u000a NaN - 0 1e400 [ } , null'.split(), b"\xff", b"\x7f", b" ")


def outcome(read: Any, kind: str, body: bytes) -> str:
    """Return what comes of a body, so that two readers can be compared."""
    try:
        events = read(kind, body)
    except ValueError as error:
        return str(error)
    return repr([(event, event.model_copy(update={"took": 7}), encoded(event)) for event in events])


def check(body: bytes) -> None:
    several = b'{"results":[%b,%b]}' % (BODY, body)
    for kind, message in ((AttemptFinished.kind, body), (AttemptsFinished.kind, several)):
        assert outcome(read_log, kind, message) == outcome(messages.read_log, kind, message)


def test_what_is_missing_has_the_value_that_the_contract_gives() -> None:
    check(json.dumps({name: FIELDS[name] for name in ("run_id", "step", "attempt")}).encode())


def test_ordinary_results_need_no_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_results, "read_by_contract", None)
    (found,) = read_log(AttemptFinished.kind, BODY)
    assert found == AttemptFinished.model_validate(FIELDS)


def test_every_field_with_every_value_at_an_edge() -> None:
    for name in NAMES:
        for value in EDGES:
            check(json.dumps(FIELDS | {name: value}).encode())


LARGE = {"output": [[]] * MIN_LARGE_BYTES, "spend": {"calls": 1, "cost_usd": "0.25"}}
MORE: dict[str, dict[str, Any]] = {
    "error": {"code": "x", "message": "m"},
    "spend": {"calls": 1, "cost_usd": "0.25"},
    "timing": {"model_ms": 2.5},
}
"""What ordinary results have not."""


def test_the_output_of_a_large_result_with_many_lists_is_decoded_without_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []

    def by_contract(kind: str, body: bytes) -> Any:
        read.append(body)
        return messages.read_log(kind, body)

    monkeypatch.setattr(read_results, "read_by_contract", by_contract)
    one = json.dumps(FIELDS | LARGE).encode()
    expected = AttemptFinished.model_validate(FIELDS | LARGE)
    assert read_log(AttemptFinished.kind, one) == (expected,)
    several = b'{"results":[%b,%b]}' % (one, BODY)
    ordinary = AttemptFinished.model_validate(FIELDS)
    assert read_log(AttemptsFinished.kind, several) == (expected, ordinary)
    assert [len(body) < 2 * len(BODY) for body in read] == [True, True]


def test_large_results_with_every_field_and_some_values_at_an_edge() -> None:
    fields = FIELDS | LARGE
    for value in EDGES[::3]:
        for name in NAMES:
            check(json.dumps(fields | {name: value}).encode())
        for name, parts in MORE.items():
            for part in parts:
                check(json.dumps(fields | {name: parts | {part: value}}).encode())


@pytest.mark.parametrize(
    "body", [b"[%b]", b'{"results": {"a": %b}}', b'{"results": [[%b]]}', b'{"results": %b, 1}']
)
def test_large_messages_that_are_no_results(body: bytes) -> None:
    check(body % json.dumps(FIELDS | LARGE).encode())


def test_a_result_with_calls_of_models() -> None:
    check(encoded(AttemptFinished.model_validate(FIELDS | {"spend": Spend(calls=2)})))


@given(st.dictionaries(names, values, min_size=1, max_size=4), st.sets(names, max_size=3))
@example({"output": {"a": float("nan")}}, set())
def test_other_values_and_missing_fields(changes: dict[str, Any], missing: set[str]) -> None:
    fields = FIELDS | changes
    check(json.dumps({name: fields[name] for name in fields if name not in missing}).encode())


@given(st.integers(0, len(BODY)), st.integers(0, 4), st.sampled_from(PIECES))
@example(BODY.index(b"input_digest"), 1, b"\xff")
def test_bytes_that_were_changed(at: int, length: int, piece: bytes) -> None:
    check(BODY[:at] + piece + BODY[at + length :])


@given(names, values, names, values, st.booleans())
def test_fields_that_stand_twice(
    first: str, one: Any, second: str, other: Any, in_front: bool
) -> None:
    more = ",".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in ((first, one), (second, other)))
    fields = BODY[1:-1]
    check(b"{%b,%b}" % ((more.encode(), fields) if in_front else (fields, more.encode())))


@pytest.mark.parametrize("depth", [1, 63, 190, 198, 199, 200, 201, 202, 203, 300, 3_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_outputs_however_deep(depth: int, begin: str, end: str) -> None:
    fields = json.dumps(FIELDS | {"output": "HERE"})
    check(fields.replace('"HERE"', begin * depth + "1" + end * depth).encode())
