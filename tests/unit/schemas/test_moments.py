"""Moments of requests: RFC 3339 with a zone, within the years that a database has."""

import pytest
from pydantic import TypeAdapter, ValidationError

from hocket.schemas.moments import Moment

MOMENT = TypeAdapter(Moment)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-01T00:00:00+23:59"]
)
def test_a_moment_is_read(text: str) -> None:
    assert MOMENT.validate_python(text).utcoffset() is not None


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_what_a_zone_puts_beyond_the_years_is_their_edge(text: str, edge: str) -> None:
    assert MOMENT.validate_python(text) == MOMENT.validate_python(edge)


@pytest.mark.parametrize("text", ["2026-01-01", "0"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        MOMENT.validate_python(text)
