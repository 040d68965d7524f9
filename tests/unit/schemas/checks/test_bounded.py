"""What a message's fields refuse: values that JSON has and Postgres does not."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Attribution, Spend, TimerFired


@pytest.mark.parametrize(
    "amount", ["1e-20000", "1e200000", "NaN", "Infinity", "-0.01", "1e-41", "0x10", ""]
)
def test_an_amount_that_numeric_cannot_hold_is_refused(amount: str) -> None:
    with pytest.raises(ValidationError, match="cost_usd"):
        Spend.model_validate({"cost_usd": amount})


def test_an_amount_keeps_every_digit() -> None:
    digits = "123456789012.1234567890123456789012345678901234567891"
    assert Spend.model_validate({"cost_usd": digits}).cost_usd == Decimal(digits)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", "a\x00b"),
        ("tenant", "a\nb"),
        ("run_id", "r" * 6_000),
        ("step", "s" * 2_401),
        ("attempt", 2**40),
        ("attempt", -1),
        ("version", 2**31),
    ],
)
def test_attribution_that_an_index_or_a_column_cannot_hold_is_refused(
    field: str, value: Any
) -> None:
    with pytest.raises(ValidationError, match=field):
        Attribution.model_validate({field: value})


@pytest.mark.parametrize(
    "moment", [*("1e400", "-1e16", '"NaN"', "1e16"), "253402300800000", "-62135596800001"]
)
def test_a_moment_that_no_timestamp_can_hold_is_refused(moment: str) -> None:
    with pytest.raises(ValidationError, match="due_at_ms"):
        TimerFired.model_validate_json(f'{{"run_id": "r1", "due_at_ms": {moment}}}')


@pytest.mark.parametrize("moment", [253_402_300_799_999, -62_135_596_800_000])
def test_every_moment_that_is_taken_can_be_shown_by_others(moment: int) -> None:
    event = TimerFired(run_id="r1", due_at_ms=moment)
    shown = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event.due_at_ms)
    assert shown.year in (1, 9999)
    assert abs(event.due_at_ms) <= 8.64e15, "a date in JavaScript"


def test_the_text_of_an_error_is_made_storable_and_cut() -> None:
    """An error about hostile text holds that text; it must not fail itself."""
    info = ErrorInfo(code="x", message="a\x00b\ud800c😀" + "y" * 30_000)
    assert info.message.startswith("a\ufffdb\ufffdc😀yyy")
    assert len(info.message) == 20_000
    info.message.encode()
