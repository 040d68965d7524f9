"""What outputs become on their way to Postgres, and which are refused."""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
)
from pydantic_core import PydanticSerializationError

from hocket.schemas.checks.plain_json import MAX_DEPTH, check_plain
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished, Spend, Timing
from hocket.schemas.messages import encoded as encoded_by_contract
from hocket.schemas.structs.results import FinishedAttempt, spend_json, timing_json
from hocket.workers.errors import OutputNotJson, OutputTooLarge
from hocket.workers.runtime.results import encoding
from hocket.workers.runtime.results.encoding import (
    MAX_CONTAINERS,
    REPLACEMENT,
    VALUES_PER_CONTAINER,
    check_ends,
    plain,
)
from hocket.workers.runtime.results.forms import READ_BACK


class Answer(BaseModel):
    text: str
    price: Decimal


class Columns:
    """Iterates over its names, as a data frame does."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def keys(self) -> list[str]:
        return list(self._columns)


def row() -> sqlite3.Row:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        found: sqlite3.Row = database.execute("SELECT 7 AS number, 'a' AS name").fetchone()
        return found


class Modest(int):
    """An integer that says that it is small."""

    def __abs__(self) -> int:
        return 0


def encoded(output: Any) -> Any:
    return json.loads(encoding.encode(FinishedAttempt("r", "s", 1), output)).get("output")


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
        ([row()], [{"number": 7, "name": "a"}]),
        (Columns(a=[1, 2], b=Columns(c=(3,))), {"a": [1, 2], "b": {"c": [3]}}),
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
        ({"long": Modest(10**2_000)}, "output.long"),
        ({"deep": nested(MAX_DEPTH + 1)}, "output.deep"),
        (Columns(a=object()), "output.a"),
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
    carried = json.loads(encoding.encode(FinishedAttempt("r", "s", 1), error=error))["error"]
    assert (carried["message"], carried["details"]) == ("bad \ufffd \ufffd", {"at": "\ufffd"})


def test_a_message_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(OutputTooLarge, match="1001 bytes; the limit is 1000"):
        encoding.check_size(b"x" * 1_001, 1_000)


class Colour(Enum):
    RED = "red"
    GLAD = "glad"


class Mood(str, Enum):  # noqa: UP042  # as in code written for Python 3.10
    GLAD = "glad"


class Loud(str):
    """A text that shows itself in another way."""

    def __str__(self) -> str:
        return self.upper()


class Named(BaseModel):
    """A model that is written in another way in JSON than in Python."""

    total_usd: Decimal = Field(default=Decimal("1.50"), alias="totalUsd")
    took: timedelta = timedelta(seconds=2)

    @field_serializer("took", when_used="json")
    def _took(self, took: timedelta) -> float:
        return took.total_seconds()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Mood.GLAD, "glad"),
        (Loud("a"), "a"),
        (Named(), {"totalUsd": "1.50", "took": 2.0}),
        ({Mood.GLAD: 1}, {"glad": 1}),
        ({True: 1, None: 2, 1.5: 3}, {"true": 1, "None": 2, "1.5": 3}),
        ({datetime(2026, 1, 2, tzinfo=UTC): 1}, {"2026-01-02T00:00:00Z": 1}),
    ],
)
def test_an_output_is_written_in_the_same_way_whatever_its_size(output: Any, expected: Any) -> None:
    small, large = encoded({"a": output}), encoded({"a": output, "b": "x" * 2_000})
    assert (small["a"], large["a"]) == (expected, expected)


@pytest.mark.parametrize("more", ["", "x" * 2_000])
@pytest.mark.parametrize(
    "keys", [{1: "a", "1": "b"}, {True: 1, "true": 2}, {Mood.GLAD: 1, Colour.GLAD: 2}]
)
def test_two_keys_that_are_the_same_as_text_are_refused(keys: Any, more: str) -> None:
    with pytest.raises(OutputNotJson, match="two keys are the same as text") as refused:
        encoded({"rows": [keys], "more": more})
    assert str(refused.value.info().field).startswith("output.rows.0.")


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


@dataclass
class Point:
    x: int
    tags: frozenset[str]


PLAIN_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | PLAIN_TEXT
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from(
        [Colour.RED, b"bytes", Point(1, frozenset("a")), Answer(text="x", price=Decimal(2))]
    )
)
OUTPUTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(PLAIN_TEXT | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
MOMENTS = st.floats(0, 253_402_300_799_999)
ERRORS = st.builds(
    ErrorInfo,
    code=PLAIN_TEXT,
    message=PLAIN_TEXT,
    slack_ms=st.none() | st.floats(-1e15, 1e15),
    details=st.dictionaries(PLAIN_TEXT, st.none() | st.floats() | st.lists(PLAIN_TEXT), max_size=2),
)
SPENT = st.builds(
    Spend,
    calls=st.integers(0, 2**53),
    cost_usd=st.decimals(0, 10**6, places=9),
)


@given(
    st.none() | OUTPUTS,
    st.none() | ERRORS,
    st.none() | SPENT,
    st.none() | st.builds(Timing, model_ms=st.floats(0, 1e15)),
    st.tuples(PLAIN_TEXT, PLAIN_TEXT, PLAIN_TEXT, st.none() | PLAIN_TEXT),
    st.tuples(MOMENTS, st.none() | MOMENTS, st.floats(-1e15, 1e15)),
)
def test_a_result_is_the_contracts_message_without_its_defaults(
    output: Any,
    error: ErrorInfo | None,
    spend: Spend | None,
    timing: Timing | None,
    texts: tuple[str, str, str, str | None],
    times: tuple[float, float | None, float],
) -> None:
    fields: dict[str, Any] = {
        "run_id": texts[0],
        "step": texts[1],
        "attempt": 7,
        "worker": texts[2],
        "capability": texts[3],
        "input_digest": "00ff",
        "delivery": 2,
        "started_at_ms": times[0],
        "finished_at_ms": times[0],
        "dispatched_at_ms": times[1],
        "queued_at_ms": times[2],
    }
    parts = {"spend": spend_json(spend), "timing": timing_json(timing)}
    given_parts = {"output": output, "error": error, "spend": spend or Spend(), "timing": timing}
    contract = json.loads(
        encoded_by_contract(AttemptFinished.model_construct(**fields, **given_parts))
    )
    by_default = json.loads(encoded_by_contract(AttemptFinished(run_id="r", step="s", attempt=1)))
    written = json.loads(encoding.written(FinishedAttempt(**fields, **parts), output, error))
    for name, part in (("spend", Spend), ("timing", Timing)):  # they have no defaults either
        if written.get(name) is not None:
            assert part.model_validate(written[name]) == given_parts[name]
            written[name] = contract[name]
    assert written == {name: value for name, value in contract.items() if name in written}
    assert list(written) == [name for name in contract if name in written]
    left_out = contract.keys() - written.keys()
    assert all(contract[name] == by_default[name] for name in left_out)


def test_what_an_ordinary_result_does_not_need_is_left_out() -> None:
    parts = {"spend": spend_json(None), "timing": timing_json(None)}
    written = json.loads(encoding.encode(FinishedAttempt("r", "s", 1, worker="w", **parts), "x"))
    assert written == {"run_id": "r", "step": "s", "attempt": 1, "output": "x", "worker": "w"}


@pytest.mark.parametrize(
    "output", [object(), b"\xff", "\ud800", {"a": object()}, ["x", {1, object()}]]
)
def test_what_the_contract_cannot_write_a_result_cannot(output: Any) -> None:
    finished = AttemptFinished.model_construct(run_id="r", step="s", attempt=1, output=output)
    for write in (
        lambda: encoded_by_contract(finished),
        lambda: encoding.written(FinishedAttempt("r", "s", 1), output, None),
    ):
        with pytest.raises(PydanticSerializationError):
            write()


def test_a_list_of_too_many_numbers_is_refused_before_the_loop_stands_still() -> None:
    many = MAX_CONTAINERS * VALUES_PER_CONTAINER
    check_ends([0] * (many - 1))
    with pytest.raises(OutputNotJson, match="values"):
        check_ends([[0] * (many // 2), [None] * (many // 2), [0.5]])


def test_long_integers_count_as_text() -> None:
    check_ends([10**900] * 1_000)
    with pytest.raises(OutputTooLarge):
        check_ends([10**900] * 200_000)


class _Short(int):
    def __abs__(self) -> int:
        return 0

    def bit_length(self) -> int:
        return 1


_LONG = 1 << 10_000_000  # writing it takes half a minute


@pytest.mark.parametrize(
    "output",
    [
        _LONG,
        -_LONG,
        [_LONG],
        {"n": _LONG},
        {_LONG: 1},
        {(_LONG,): 1},
        {"a": {1: _LONG}},
        [_Short(_LONG)],
        {_LONG},
        {_Short(_LONG): "x"},
    ],
    ids=range(10),
)
def test_an_integer_that_takes_long_to_write_is_refused_before_it_is_written(output: Any) -> None:
    with pytest.raises(OutputNotJson, match="more than 1000 digits"):
        check_ends(output)


def test_numbers_in_lists_are_carried_as_anywhere_else() -> None:
    odd = [1, -(10**30), math.inf, math.nan, 1.5, True, None, "\x00", "\ud800"]
    kept = [1, -(10**30), None, None, 1.5, True, None, REPLACEMENT, REPLACEMENT]
    assert plain(odd) == kept
    with pytest.raises(OutputNotJson, match=r"output\.1"):
        plain([0, 10**5_000])


class Shade(str, Enum):  # noqa: UP042 - the text of a StrEnum is its value
    DARK = "dark"


class Contact(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", ser_json_timedelta="float")

    first_name: str = Field(serialization_alias="firstName")
    shade: Shade = Shade.DARK
    picture: bytes = b"\xff"
    waited: timedelta = timedelta(seconds=1.5)

    @field_serializer("shade", when_used="json")
    def _shade(self, shade: Shade) -> str:
        return shade.value.upper()


@pytest.mark.parametrize(
    "output",
    [
        Contact(first_name="Ada"),
        {"who": [Contact(first_name="Ada")]},
        {"shades": [Shade.DARK, Colour.RED], Shade.DARK: 1},
        {True: 1, None: 2, datetime(2026, 1, 2, tzinfo=UTC): 3, Colour.RED: 4, (1, 2): 5},
        IPv4Network("10.0.0.0/30"),
        Point(1, frozenset("a")),
    ],
    ids=str,
)
def test_a_long_output_is_written_as_a_short_one(output: Any) -> None:
    short = encoded([output, ""])
    long = encoded([output, "x" * 2_000])
    assert long[0] == short[0] == plain(output)


def test_a_model_with_text_to_repair_keeps_its_aliases() -> None:
    assert plain(Contact(first_name="\ud800", picture=b"a"))["firstName"] == REPLACEMENT


@pytest.mark.parametrize(
    "secret",
    [SecretStr("k"), SecretBytes(b"k"), Secret[int](7)],
    ids=lambda one: type(one).__name__,
)
def test_a_secret_is_hidden_in_an_output_and_refused_where_it_is_used_again(secret: Any) -> None:
    class Login(BaseModel):
        user: str
        token: Any

    login = Login(user="ada", token=secret)
    assert set(plain(login)["token"]) == {"*"}
    with pytest.raises(OutputNotJson, match=r"at `value\.0\.token`, a Secret.* is not stored"):
        plain([login], "value", READ_BACK)
