"""What the coordinator counts."""

import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.core.scheduling.type_queue import Load
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


def test_of_a_type_that_nobody_runs_any_more_nothing_is_told() -> None:
    metrics = CoordinatorMetrics(registry := CollectorRegistry())
    load = Load(held=3, out=1, slots=4, window=4, rate_per_s=1.0)
    metrics.dispatching({"python": load, "ours": load}, {"python": 2.5, "ours": 1.0})
    metrics.dispatching({"python": load}, {"python": 2.5})
    for name in ("held", "out", "window"):
        assert registry.get_sample_value(f"hocket_steps_{name}", {"type": "ours"}) is None
        assert registry.get_sample_value(f"hocket_steps_{name}", {"type": "python"})
    for name in ("slots", "slots_wanted"):
        assert registry.get_sample_value(f"hocket_worker_{name}", {"type": "ours"}) is None
        assert registry.get_sample_value(f"hocket_worker_{name}", {"type": "python"})
