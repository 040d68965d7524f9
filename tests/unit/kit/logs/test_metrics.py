"""The metrics of a process."""

from collections.abc import Iterator

import pytest
from prometheus_client import Counter, Histogram, enable_created_metrics, generate_latest

from hocket.kit.logs import telemetry
from hocket.kit.process.settings import Settings


@pytest.fixture(autouse=True)
def created_metrics_as_before() -> Iterator[None]:
    yield
    enable_created_metrics()


def test_counters_have_no_series_of_when_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_configure_logs", lambda *_: None)
    registry = telemetry.setup("test", Settings()).registry
    Counter("calls", "Calls.", ["model"], registry=registry).labels("m").inc()
    Histogram("seconds", "Seconds.", registry=registry).observe(1)

    told = generate_latest(registry).decode()

    assert 'calls_total{model="m"} 1.0' in told
    assert "seconds_count 1.0" in told
    assert "_created" not in told
