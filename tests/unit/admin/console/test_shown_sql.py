"""Queries as somebody can run them."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from hocket.admin.console.shown_sql import Value, shown_sql


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("acme", "'acme'"),
        ("o'neil $2", "'o''neil $2'"),
        (7, "7"),
        (Decimal("0.50"), "0.50"),
        (None, "NULL"),
        (date(2026, 11, 2), "date '2026-11-02'"),
        (datetime(2026, 11, 2, 3, tzinfo=UTC), "timestamptz '2026-11-02 03:00:00+00:00'"),
        (["a", "b'"], "ARRAY['a', 'b''']::text[]"),
    ],
)
def test_a_value_is_written_as_a_literal(value: Value, literal: str) -> None:
    assert shown_sql("\nSELECT $1, $2\n", value, "x") == f"SELECT {literal}, 'x'"


def test_ten_values_and_more_keep_their_places() -> None:
    assert shown_sql("$1 $10 $11", *range(1, 12)) == "1 10 11"
