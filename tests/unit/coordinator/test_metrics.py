"""What the coordinator counts."""

import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.metrics import CoordinatorMetrics


@pytest.mark.parametrize(
    ("status", "late", "result"),
    [
        ("succeeded", False, "met"),
        ("degraded", False, "met"),
        ("succeeded", True, "late"),
        ("failed", False, "failed"),
        ("failed", True, "failed"),
        ("cancelled", True, "cancelled"),
    ],
)
def test_a_run_meets_its_deadline_only_with_an_answer_before_it(
    status: str, late: bool, result: str
) -> None:
    metrics = CoordinatorMetrics(registry := CollectorRegistry())
    metrics.ended(status, "standard", 5.0, late=late)
    labels = {"priority": "standard", "result": result}
    assert registry.get_sample_value("hocket_run_deadlines_total", labels) == 1


def test_what_is_set_aside_is_told_of_before_it_happens() -> None:
    CoordinatorMetrics(registry := CollectorRegistry())
    for what in ("event", "run"):
        assert registry.get_sample_value("hocket_set_aside_total", {"what": what}) == 0
