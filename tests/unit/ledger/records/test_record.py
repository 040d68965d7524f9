"""Encoded records as rows."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from hocket.ledger.records.record import (
    BOOKED_COLUMNS,
    MAX_RECORD_BYTES,
    OPENED_COLUMNS,
    REFUSED_COLUMNS,
    Record,
    UsageMalformed,
    booked,
    moment,
    record_of,
)
from hocket.schemas.messages import Attribution, CallOpened, CallRefused
from support.ledger_rig import record

WHO = Attribution(tenant="acme", run_id="r", labels={"team": "search"})


def columns(found: Record, of: Any = BOOKED_COLUMNS) -> dict[str, Any]:
    return dict(zip((column.name for column in of), found.row, strict=True))


def test_a_usage_record_is_a_row_and_names_what_was_amended() -> None:
    usage = record("c1", cost_usd=Decimal("0.25"), attribution=WHO, started_at_ms=1_000.0)
    row = columns(record_of(usage.model_dump_json().encode()))
    assert (row["call_id"], row["tenant"], row["cost_usd"]) == ("c1", "acme", Decimal("0.25"))
    assert row["started_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["labels"], row["amended"]) == ('{"team":"search"}', None)
    assert columns(booked(usage, ("model", "arm")))["amended"] == "model, arm"


def test_openings_and_refusals_are_rows_of_their_own_tables() -> None:
    opened = CallOpened(
        call_id="c1", model="m", backend="b", gateway="g", attribution=WHO,
        expected_usd=Decimal(1), started_at_ms=1.0, deadline_at_ms=2.0,
    )  # fmt: skip
    refused = CallRefused(
        call_id="c2", model="m", gateway="g", attribution=WHO, error_code="e", reason="why",
        refused_at_ms=1.0,
    )  # fmt: skip
    one = record_of(opened.model_dump_json().encode())
    other = record_of(refused.model_dump_json().encode())
    assert (one.opened, one.refused, one.usage) == (True, False, None)
    assert columns(one, OPENED_COLUMNS)["expected_usd"] == Decimal(1)
    assert (other.opened, other.refused) == (False, True)
    assert columns(other, REFUSED_COLUMNS)["reason"] == "why"


@pytest.mark.parametrize("kind", ["opened", "refused", "warm", "call"])
def test_a_label_may_be_called_kind(kind: str) -> None:
    who = Attribution(tenant="acme", run_id="r", labels={"kind": kind})
    told = {"call_id": "c", "model": "m", "attribution": who}
    opened = CallOpened(**told, backend="b", started_at_ms=1.0, deadline_at_ms=2.0)
    refused = CallRefused(**told, error_code="e", reason="why", refused_at_ms=1.0)
    found = [
        record_of(one.model_dump_json().encode())
        for one in (record("c1", attribution=who, cost_usd=Decimal(0)), opened, refused)
    ]
    assert [(one.opened, one.refused, one.warm) for one in found] == [
        (False, False, False),
        (True, False, False),
        (False, True, False),
    ]
    assert columns(found[0])["labels"] == f'{{"kind":"{kind}"}}'


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b"{", "the body"),
        (b'{"call_id": 7}', "call_id"),
        (b'{"kind":"opened"}', "call_id"),
        (b'{"kind":"warm"}', "call_id"),
    ],
)
def test_what_is_no_record_names_its_first_fault(payload: bytes, field: str) -> None:
    with pytest.raises(UsageMalformed) as malformed:
        record_of(payload)
    assert malformed.value.fields["field"].removeprefix("the ") in (
        field,
        field.removeprefix("the "),
    )


def test_a_record_that_is_too_large_is_not_read() -> None:
    most = record("c1").model_dump_json().encode().ljust(MAX_RECORD_BYTES)
    assert record_of(most).call_id == "c1"
    with pytest.raises(UsageMalformed, match="more than"):
        record_of(most + b" ")


@pytest.mark.parametrize(
    "other",
    [
        {"attribution": Attribution(tenant="other")},
        {"started_at_ms": 1_000.001},
        {"backend": "other"},
        {"replica": "other"},
    ],
)
def test_each_request_under_one_id_gets_an_id_of_its_own(other: dict[str, Any]) -> None:
    told: dict[str, Any] = {"attribution": Attribution(tenant="acme"), "started_at_ms": 1_000.0}
    first, second = booked(record("c", **told)), booked(record("c", **told | other))
    assert first.under_own_id().call_id != second.under_own_id().call_id


def test_two_requests_under_one_id_are_told_apart() -> None:
    one, other = booked(record("c", backend="a")), booked(record("c", backend="b"))
    assert one.identity != other.identity
    assert one.identity == booked(record("c", backend="a", cost_usd=9)).identity
    renamed = other.under_own_id()
    assert renamed.call_id.startswith("c#")
    assert renamed.row[0] == renamed.call_id
    assert renamed.row[1:] == other.row[1:]
    assert renamed == other.under_own_id()


@pytest.mark.parametrize("at_ms", [float("inf"), 1e300, -1e300])
def test_a_time_beyond_all_years_is_the_first_or_last_there_is(at_ms: float) -> None:
    assert 1 <= moment(at_ms).year <= 9999
