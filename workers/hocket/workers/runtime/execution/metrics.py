"""Prometheus metrics of a worker: steps by type and outcome, their durations, slots in use.

They are counted in plain numbers and become metrics when they are read, because the client library's
counters and histograms take a lock for each number, which costs several times as much as the rest.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from hocket.schemas.errors import ErrorInfo
from hocket.workers.runtime.intake.undeliverable import letters

DURATION_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
_BOUNDS = (*map(str, DURATION_BUCKETS_S), "+Inf")
SUCCEEDED = "succeeded"
SUSPENDED = "suspended"


class TypeMeters:
    """The metrics of one node type."""

    def __init__(self, running: Gauge) -> None:
        self.outcomes: Counter[str] = Counter({SUCCEEDED: 0})
        self.durations = [0] * len(_BOUNDS)
        """How many attempts took up to each bound, but longer than the bound before it."""
        self.duration_s = 0.0
        self._running = running

    def finished(
        self, error: ErrorInfo | None, duration_ms: float, *, is_suspended: bool = False
    ) -> None:
        """Count an attempt that ended, or was suspended."""
        duration_s = duration_ms / 1000
        result = SUCCEEDED if error is None else str(error.error_class)
        self.outcomes[SUSPENDED if is_suspended else result] += 1
        self.durations[bisect_left(DURATION_BUCKETS_S, duration_s)] += 1
        self.duration_s += duration_s

    def watch_running(self, running: Callable[[], float]) -> None:
        """Set the function that gives the number of slots in use whenever the metrics are read."""
        self._running.set_function(running)


class Meters(Collector):
    """The metrics of one process; `of_type` returns those of a node type."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._of_types: dict[str, TypeMeters] = {}
        self._running = Gauge(
            "hocket_worker_running",
            "Attempts currently holding a slot.",
            ["type"],
            registry=registry,
        )
        self._slots = Gauge(
            "hocket_worker_step_slots",
            "Slots of a node type in this worker.",
            ["type"],
            registry=registry,
        )

        not_kept = Gauge(
            "hocket_worker_letters_not_kept",
            "Unreadable steps not kept as dead letters, because there were too many.",
            registry=registry,
        )
        not_kept.set_function(lambda: letters.unkept)
        registry.register(self)

    def of_type(self, node_type: str, slots: int) -> TypeMeters:
        """Return the metrics of a node type."""
        self._slots.labels(node_type).set(slots)
        meters = self._of_types[node_type] = TypeMeters(self._running.labels(node_type))
        return meters

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Yield the metrics."""
        finished = CounterMetricFamily(
            "hocket_worker_steps",
            "Attempts that ended, by node type and outcome (`succeeded`, `suspended` or the"
            " error class).",
            labels=["type", "outcome"],
        )
        durations = HistogramMetricFamily(
            "hocket_worker_step_duration_seconds",
            "Time from the start of an attempt to its result.",
            labels=["type"],
        )
        for node_type, meters in self._of_types.items():
            for outcome, count in meters.outcomes.items():
                finished.add_metric([node_type, outcome], count)
            buckets = list(zip(_BOUNDS, accumulate(meters.durations), strict=True))
            durations.add_metric([node_type], buckets, meters.duration_s)
        yield finished
        yield durations
