"""What is told of a key's secrets."""

from datetime import UTC, datetime

import pytest

from hocket.kit.access.key_store import second_after


@pytest.mark.parametrize(
    ("microsecond", "told"),
    [(0, "2026-03-01T23:59:59+00:00"), (1, "2026-03-02T00:00:00+00:00")],
    ids=["whole", "fraction"],
)
def test_an_end_is_told_in_seconds_and_not_before_it(microsecond: int, told: str) -> None:
    assert second_after(datetime(2026, 3, 1, 23, 59, 59, microsecond, UTC)) == told
