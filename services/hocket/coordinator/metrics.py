"""The coordinator's Prometheus metrics."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hocket.coordinator.core.scheduling.type_queue import Load
from hocket.kit.logs.tallies import Distribution, Tally

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000)
SET_ASIDE = ("event", "run")


class CoordinatorMetrics:
    """See the fields' own help texts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Tally(
            "hocket_log_events", "Log events applied, by kind.", ["kind"], registry=registry
        )
        self._runs = Tally(
            "hocket_runs_ended", "Runs ended, by status.", ["status"], registry=registry
        )
        self._deadlines = Tally(
            "hocket_run_deadlines",
            "Runs ended, by class and deadline result: `met`, `late` (result after the deadline) or, "
            "for runs without a result, their status.",
            ["priority", "result"],
            registry=registry,
        )
        self._tasks = Tally(
            "hocket_tasks", "Tasks processed at intake, by outcome.", ["outcome"], registry=registry
        )
        self.letters_not_kept = Counter(
            "hocket_letters_not_kept",
            "Rejected tasks not kept as dead letters, because there were too many.",
            registry=registry,
        )
        self.in_flight = Gauge("hocket_runs_in_flight", "Runs in memory.", registry=registry)
        self.owned = Gauge(
            "hocket_partitions_owned", "Partitions whose log is read here.", registry=registry
        )
        self._flow = Counter(
            "hocket_flow_decisions",
            "Runs decided by flow control: started, replaced, told_again, or the reason for refusal.",
            ["decision"],
            registry=registry,
        )
        self._moved = Counter(
            "hocket_runs_moved",
            "Runs moved out of memory while waiting (parked), and back into memory (woken).",
            ["how"],
            registry=registry,
        )
        self._aside = Counter(
            "hocket_set_aside",
            "Events that could not be applied, and runs whose rows could not be stored or read.",
            ["what"],
            registry=registry,
        )
        for what in SET_ASIDE:  # Prometheus sees an increase to 1 only if 0 was exported before
            self._aside.labels(what)
        self._run_seconds = Distribution(
            "hocket_run_seconds",
            "Time from a run's acceptance to its end, by class.",
            ["priority"],
            buckets=SECONDS,
            registry=registry,
        )
        self._batch = Histogram(
            "hocket_commit_events", "Events per commit.", buckets=SIZES, registry=registry
        )
        self._commit_seconds = Histogram(
            "hocket_commit_seconds", "Duration of a commit.", buckets=SECONDS, registry=registry
        )
        self._takeovers = Counter(
            "hocket_takeovers", "Partitions taken over, by cause.", ["cause"], registry=registry
        )
        self._takeover_seconds = Histogram(
            "hocket_takeover_seconds",
            "Time from the decision to take over a partition until its log is read, by cause.",
            ["cause"],
            buckets=SECONDS,
            registry=registry,
        )

        self._cache = Counter(
            "hocket_step_cache",
            "Steps that looked up the step cache, by answer.",
            ["answer"],
            registry=registry,
        )

        self._tasks_waiting = Gauge(
            "hocket_tasks_waiting",
            "Tasks waiting at intake until they can make their deadline.",
            registry=registry,
        )
        self._paused = Gauge(
            "hocket_intake_paused",
            "1 while intake is paused because a coordinator has reached its limit of runs.",
            registry=registry,
        )
        self._held = Gauge(
            "hocket_steps_held", "Ready steps waiting for a slot.", ["type"], registry=registry
        )
        self._out = Gauge(
            "hocket_steps_out",
            "Dispatched steps that have not ended.",
            ["type"],
            registry=registry,
        )
        self._slots = Gauge(
            "hocket_worker_slots", "Slots announced by workers.", ["type"], registry=registry
        )
        self._wanted = Gauge(
            "hocket_worker_slots_wanted",
            "Slots needed to meet deadlines, for expected and for waiting steps.",
            ["type"],
            registry=registry,
        )
        self._window = Gauge(
            "hocket_steps_window",
            "Maximum number of dispatched steps; -1 if the type is not gated.",
            ["type"],
            registry=registry,
        )
        self._types: set[str] = set()
        """The node types that the gauges above report."""
        self._held_seconds = Distribution(
            "hocket_step_held_seconds",
            "Time that steps waited for their turn, for those that had to wait.",
            ["type", "priority"],
            buckets=SECONDS,
            registry=registry,
        )

    def released(self, node_type: str, priority: str, held_ms: float) -> None:
        self._held_seconds.observe(held_ms / 1000, node_type, priority)

    def dispatching(self, loads: Mapping[str, Load], wanted: Mapping[str, float]) -> None:
        """Publish each type's load, and the slots that it needs."""
        for gone in (
            self._types - loads.keys()
        ):  # no worker runs them now: their last values are stale
            for gauge in (self._held, self._out, self._slots, self._wanted, self._window):
                gauge.remove(gone)
        self._types = set(loads)
        for node_type, load in loads.items():
            self._held.labels(node_type).set(load.held)
            self._out.labels(node_type).set(load.out)
            self._slots.labels(node_type).set(load.slots)
            self._wanted.labels(node_type).set(wanted[node_type])
            self._window.labels(node_type).set(-1 if load.window is None else load.window)

    def applied(self, kind: str, events: int) -> None:
        self._events.add(events, kind)

    def ended(self, status: str, priority: str, duration_ms: float, *, late: bool) -> None:
        self._runs.count(status)
        answered = status in ("succeeded", "degraded")
        result = status if not answered else "late" if late else "met"
        self._deadlines.count(priority, result)
        self._run_seconds.observe(duration_ms / 1000, priority)

    def tasks_waiting(self, count: int) -> None:
        self._tasks_waiting.set(count)

    def intake_pauses(self, paused: bool) -> None:
        self._paused.set(paused)

    def task(self, outcome: str) -> None:
        self._tasks.count(outcome)

    def parked(self) -> None:
        self._moved.labels("parked").inc()

    def set_aside(self, what: str) -> None:
        self._aside.labels(what).inc()

    def woken(self) -> None:
        self._moved.labels("woken").inc()

    def committed(self, events: int, latency_ms: float) -> None:
        self._batch.observe(events)
        self._commit_seconds.observe(latency_ms / 1000)

    def flow_decided(self, decision: str, runs: int) -> None:
        if runs:
            self._flow.labels(decision).inc(runs)

    def cache(self, answer: str, steps: int) -> None:
        if steps:
            self._cache.labels(answer).inc(steps)

    def taken(self, cause: str, latency_ms: float) -> None:
        self._takeovers.labels(cause).inc()
        self._takeover_seconds.labels(cause).observe(latency_ms / 1000)
