"""Estimates of durations, as measurements come in."""

from hocket.coordinator.core.time.duration_estimates import Estimate, observe


def test_durations_follow_what_is_measured() -> None:
    estimate: Estimate | None = None
    for _ in range(500):
        estimate = observe(estimate, 40.0)
    for _ in range(500):
        estimate = observe(estimate, 60.0)
    assert estimate is not None
    assert 59 < estimate.mean_ms < 61
    assert estimate.variance < 5
