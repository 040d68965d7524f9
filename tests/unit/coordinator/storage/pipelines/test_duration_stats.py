"""What is measured can be told: a log believes it."""

from hocket.coordinator.core.run.event_checks import doubt
from hocket.coordinator.core.time.pipeline_forecasts import PipelineForecasts
from hocket.coordinator.storage.pipelines.duration_stats import Durations


def test_a_time_that_clocks_made_negative_is_none_at_all() -> None:
    durations = Durations(None)  # type: ignore[arg-type]
    durations.measured("t", "p", "a", -156.6)
    event = PipelineForecasts().news("t", "p", durations.of("t", "p"))
    assert event is not None
    assert [node.mean_ms for node in event.nodes] == [0.0]
    assert doubt(event, partition=0, partitions=1, now_ms=0.0) is None
