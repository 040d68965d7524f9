"""What outputs become on their way to Postgres, and which are refused."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.plain_json import MAX_DEPTH, check_plain
from hocket.workers.errors import OutputNotJson, OutputTooLarge
from hocket.workers.runtime.execution import results


class Answer(BaseModel):
    text: str
    price: Decimal


def encoded(output: Any) -> Any:
    finished = AttemptFinished(run_id="r", step="s", attempt=1, output=output)
    return json.loads(results.encode(finished))["output"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, None),
        ({"a": [1, 2.5, True, "x"]}, {"a": [1, 2.5, True, "x"]}),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        (Answer(text="yes", price=Decimal("1.10")), {"text": "yes", "price": "1.10"}),
        ([Answer(text="\x00", price=Decimal(1))], [{"text": "\ufffd", "price": "1"}]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (math.nan, None),
        ({"rate": math.inf}, {"rate": None}),
        ("a\x00b", "a\ufffdb"),
        ({"k\x00": 1}, {"k\ufffd": 1}),
        ("half \ud800 pair", "half \ufffd pair"),
        ("whole \U0001f600 pair", "whole \U0001f600 pair"),
        ("\\u0000", "\\u0000"),
        ("\ud800" + "x" * 2_000, "\ufffd" + "x" * 2_000),
    ],
)
def test_an_output_is_carried_as_json(output: Any, expected: Any) -> None:
    assert encoded(output) == expected


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ({"a": {"b": object()}}, "output.a.b"),
        ([b"\xff\xfe"], "output.0"),
        (10**2_000, "output"),
        ({"deep": nested(MAX_DEPTH + 1)}, "output.deep"),
    ],
)
def test_an_output_that_is_not_json_is_refused_with_its_place(output: Any, place: str) -> None:
    with pytest.raises(OutputNotJson) as refused:
        encoded(output)
    assert refused.value.info().field is not None
    assert str(refused.value.info().field).startswith(place)


def test_an_output_may_nest_as_deep_as_inputs_may() -> None:
    assert encoded(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)


def test_an_error_with_text_that_postgres_refuses_is_repaired() -> None:
    error = ErrorInfo(code="x", message="bad \x00 \ud800", details={"at": "\x00"})
    finished = AttemptFinished(run_id="r", step="s", attempt=1, error=error)
    carried = json.loads(results.encode(finished))["error"]
    assert (carried["message"], carried["details"]) == ("bad \ufffd \ufffd", {"at": "\ufffd"})


def test_a_message_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(OutputTooLarge, match="1001 bytes; the limit is 1000"):
        results.check_size(b"x" * 1_001, 1_000)


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None))
    | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=None)), inner),
    max_leaves=30,
)


@given(JSON_LIKE)
def test_whatever_is_encoded_passes_the_check_for_what_can_be_stored(output: Any) -> None:
    check_plain(encoded(output))
