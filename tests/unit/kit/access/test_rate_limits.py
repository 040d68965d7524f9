"""The rates of requests by name, whatever the machine's clock does."""

import pytest

from hocket.kit.access.rate_limits import BURST_S, RateLimits, TooManyRequests


def test_a_clock_that_is_set_back_refuses_nobody() -> None:
    limits = RateLimits()
    limits.take("a", 10.0, 10_000.0)

    limits.take("a", 10.0, 10_000.0 - 3_600)


def test_what_is_owed_stays_owed_when_the_clock_is_set_back() -> None:
    limits = RateLimits()
    for _ in range(int(BURST_S * 8) + 1):
        limits.take("a", 8.0, 10_000.0)

    with pytest.raises(TooManyRequests) as refused:
        limits.take("a", 8.0, 5_000.0)

    assert refused.value.fields["retry_after_ms"] < 1_000
    limits.take("a", 8.0, 5_001.0)
