"""Moments are whole microseconds, and Postgres gives back what it was given."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.core.moments import nearest, not_before

EPOCH_MS = st.floats(min_value=1.6e12, max_value=2.2e12)


def through_postgres(at_ms: float) -> float:
    """What `to_timestamp(ms / 1000)` keeps and `extract(epoch ...) * 1000` gives back."""
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(at_ms / 1_000 * 1e6))
    us = (kept - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return us / 1_000


@given(EPOCH_MS)
def test_a_timer_that_has_come_is_due_within_a_microsecond(at_ms: float) -> None:
    moment = not_before(at_ms)
    assert at_ms <= moment <= at_ms + 0.0015
    assert not_before(moment) == moment


@given(EPOCH_MS)
def test_a_moment_is_read_back_as_it_was_written(at_ms: float) -> None:
    for moment in (not_before(at_ms), nearest(at_ms)):
        assert through_postgres(moment) == moment
