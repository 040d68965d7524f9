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
    "text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01", "2026-01-01", "0"]
)
def test_what_is_none_or_has_no_day_in_utc_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        MOMENT.validate_python(text)
