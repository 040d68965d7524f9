"""What a worker counted reads as metrics of Prometheus, as the client library would have them."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.workers.runtime.execution.metrics import DURATION_BUCKETS_S, Meters

STEPS = "hocket_worker_steps"
DURATIONS = "hocket_worker_step_duration_seconds"


def lines(registry: CollectorRegistry) -> set[str]:
    """Return the samples of a registry, without when each was made."""
    text = generate_latest(registry).decode()
    samples = [line for line in text.splitlines() if line.startswith((STEPS, DURATIONS))]
    return {line for line in samples if "_created" not in line}


@pytest.mark.parametrize("duration_ms", [0.0, 1.0, 1.001, 99.9, 100.0, 300_000.0, 300_001.0])
def test_attempts_are_counted_by_outcome_and_duration(duration_ms: float) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    steps = Counter(STEPS, "x", ["type", "outcome"], registry=theirs)
    durations = Histogram(DURATIONS, "x", ["type"], buckets=DURATION_BUCKETS_S, registry=theirs)
    meters = Meters(ours).of_type("python", 8)
    steps.labels("python", "succeeded")
    late = ErrorInfo(code="x", message="x", error_class=ErrorClass.TIMEOUT)
    for error, outcome in ((None, "succeeded"), (late, "timeout"), (None, "succeeded")):
        meters.finished(error, duration_ms)
        steps.labels("python", outcome).inc()
        durations.labels("python").observe(duration_ms / 1000)
    assert lines(ours) == lines(theirs)


def test_a_suspended_attempt_is_neither_a_success_nor_an_error() -> None:
    registry = CollectorRegistry()
    meters = Meters(registry).of_type("python", 8)
    meters.finished(None, 5.0, is_suspended=True)
    counted = {line for line in lines(registry) if line.startswith(STEPS)}
    assert counted == {
        f'{STEPS}_total{{outcome="succeeded",type="python"}} 0.0',
        f'{STEPS}_total{{outcome="suspended",type="python"}} 1.0',
    }
