"""Which rows have expired at a time."""

from datetime import UTC, datetime

import pytest

from hocket.ledger.upkeep.pass_time import expired_before


@pytest.mark.parametrize(
    ("period", "days", "now", "before"),
    [
        ("usage", 7, datetime(2026, 11, 30, 12, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)),
        ("usage", 7, datetime(2026, 12, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)),
        ("usage", 1, datetime(2026, 12, 3, 12, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        ("usage", 7, datetime(2026, 12, 3, tzinfo=UTC), datetime(2026, 11, 26, tzinfo=UTC)),
        ("usage", 40, datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 10, 21, tzinfo=UTC)),
        ("content", 7, datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)),
    ],
    ids=["last-day", "first-day", "third-day", "longer-than-so-far", "longer", "no-calls"],
)
def test_calls_of_the_current_month_have_not_expired(
    period: str, days: int, now: datetime, before: datetime
) -> None:
    assert expired_before(period, days, now) == before
