"""Prometheus metrics of a worker: steps by type and outcome, their durations, slots in use."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hocket.schemas.errors import ErrorInfo
from hocket.workers.runtime.intake.undeliverable import letters

DURATION_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


class Meters:
    """The metrics of one process; `of_type` gives those of a node type with its label bound."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._finished = Counter(
            "hocket_worker_steps",
            "Attempts that ended, by node type and outcome (`succeeded` or the error class).",
            ["type", "outcome"],
            registry=registry,
        )
        self._duration_s = Histogram(
            "hocket_worker_step_duration_seconds",
            "From the start of an attempt to its result.",
            ["type"],
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._running = Gauge(
            "hocket_worker_running", "Attempts that hold a slot.", ["type"], registry=registry
        )
        self._slots = Gauge(
            "hocket_worker_slots", "Slots of a node type.", ["type"], registry=registry
        )

        not_kept = Gauge(
            "hocket_worker_letters_not_kept",
            "Steps that could not be read and became no dead letter, for too many came.",
            registry=registry,
        )
        not_kept.set_function(lambda: letters.unkept)

    def of_type(self, node_type: str, slots: int) -> "TypeMeters":
        """Return the metrics of a node type."""
        self._slots.labels(node_type).set(slots)
        return TypeMeters(
            self._finished, self._duration_s.labels(node_type), self._running, node_type
        )


class TypeMeters:
    """The metrics of one node type."""

    def __init__(
        self, finished: Counter, duration_s: Histogram, running: Gauge, node_type: str
    ) -> None:
        self._finished = finished
        self._succeeded = finished.labels(node_type, "succeeded")
        self._duration_s = duration_s
        self._running = running.labels(node_type)
        self._type = node_type

    def finished(self, error: ErrorInfo | None, duration_ms: float) -> None:
        """Count an attempt that ended."""
        if error is None:
            self._succeeded.inc()
        else:
            self._finished.labels(self._type, str(error.error_class)).inc()
        self._duration_s.observe(duration_ms / 1000)

    def watch_running(self, running: Callable[[], float]) -> None:
        """Read the number of slots in use when the metrics are read."""
        self._running.set_function(running)
