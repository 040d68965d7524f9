"""The gateway's metrics for Prometheus. Money is counted in floats here;
the ledger has exact amounts."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hocket.gateway.core.routing.breaker import BreakerState
from hocket.schemas.messages import WarmRecord
from hocket.schemas.structs.usage import RecordedUsage

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


_Bound = tuple[Counter, Counter, Counter, Counter, Counter, Counter, Histogram]


class GatewayMetrics:
    """Calls, tokens, cost and latency by model and backend; calls in flight and waiting."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by = ("model", "backend")
        self._bound: dict[tuple[str, str, str], _Bound] = {}
        self.calls = Counter(
            "hocket_gateway_calls",
            "Attempts to call a backend.",
            (*by, "status"),
            registry=registry,
        )
        self.refused = Counter(
            "hocket_gateway_refused", "Calls refused at the door.", ("code",), registry=registry
        )
        self.refusals_unrecorded = Counter(
            "hocket_gateway_refusals_unrecorded",
            "Calls refused before a backend was asked of which no record was made, because their tenant"
            " had too many.",
            registry=registry,
        )
        self.repeated = Counter(
            "hocket_gateway_repeated",
            "Repeated deliveries of calls, which were not made again.",
            registry=registry,
        )
        self.tokens = Counter(
            "hocket_gateway_tokens", "Tokens metered.", (*by, "kind"), registry=registry
        )
        self.cost_usd = Counter(
            "hocket_gateway_cost_usd", "US dollars spent.", by, registry=registry
        )
        self.latency_s = Histogram(
            "hocket_gateway_latency_seconds",
            "Duration of one attempt to call a backend.",
            by,
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.http_requests = Counter(
            "hocket_gateway_http_requests", "Requests at the HTTP door.", registry=registry
        )
        self.http_failures = Counter(
            "hocket_gateway_http_failures",
            "Requests at the HTTP door that ended with an error.",
            ("code",),
            registry=registry,
        )
        self.in_flight = Gauge(
            "hocket_gateway_in_flight", "Calls held by this gateway.", registry=registry
        )
        self.waiting = Gauge(
            "hocket_gateway_waiting", "Calls waiting for a slot at a backend.", registry=registry
        )
        self.unbooked = Gauge(
            "hocket_gateway_unbooked", "Usage records not yet acknowledged.", registry=registry
        )

        self.hedges = Counter(
            "hocket_gateway_hedges",
            "Hedged (second) requests for a call, by whether they answered first.",
            ("model", "result"),
            registry=registry,
        )
        self.cascade_answers = Counter(
            "hocket_gateway_cascade_answers",
            "Answers from stages of a cascade, by whether they were accepted.",
            ("model", "stage", "result"),
            registry=registry,
        )
        self.experiment_calls = Counter(
            "hocket_gateway_experiment_calls",
            "Calls that were part of an experiment.",
            ("experiment", "arm", "result"),
            registry=registry,
        )
        self.arm_off = Gauge(
            "hocket_gateway_arm_off",
            "1 while an arm of an experiment is rolled back, for all tenants or for some.",
            ("experiment", "arm"),
            registry=registry,
        )
        self.arm_rollbacks = Counter(
            "hocket_gateway_arm_rollbacks",
            "Rollbacks of arms that this gateway found bad.",
            ("experiment", "arm", "cause"),
            registry=registry,
        )
        self.hook_failures = Counter(
            "hocket_gateway_hook_failures",
            "Hooks that failed or timed out, by failure policy.",
            ("hook", "on_failure"),
            registry=registry,
        )
        self.breaker_open = Gauge(
            "hocket_gateway_breaker_open",
            "1 while a replica's breaker is open, for all tenants or one, 0.5 while it is half-open.",
            ("backend",),
            registry=registry,
        )
        self.breaker_openings = Counter(
            "hocket_gateway_breaker_openings",
            "Number of times a replica's breaker opened.",
            ("backend",),
            registry=registry,
        )

        self.warm_level = Gauge(
            "hocket_gateway_warm_level",
            "How warm a replica is: 0 cold, 1 provisioned, 2 ready.",
            ("backend",),
            registry=registry,
        )
        self.warm_seconds = Counter(
            "hocket_gateway_warm_seconds",
            "Time for which replicas were held: starting, busy, idle, provisioned.",
            ("backend", "kind"),
            registry=registry,
        )
        self.warm_wasted_usd = Counter(
            "hocket_gateway_warm_wasted_usd",
            "US dollars spent on replicas held without a call.",
            ("backend",),
            registry=registry,
        )
        self.prefills = Counter(
            "hocket_gateway_prefills",
            "Prompt prefixes announced for prefill, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.start_failures = Counter(
            "hocket_gateway_start_failures",
            "Failed starts of replicas.",
            ("backend",),
            registry=registry,
        )

    def held(self, backend: str, record: WarmRecord) -> None:
        """Count the time of a replica."""
        for kind in ("starting", "busy", "idle", "provisioned"):
            passed_ms = getattr(record, f"{kind}_ms")
            self.warm_seconds.labels(backend, kind).inc(passed_ms / 1000)
        self.warm_wasted_usd.labels(backend).inc(float(record.wasted_usd))

    def breaker(self, backend: str, state: BreakerState, *, opened: bool) -> None:
        """Record the state of a replica's breakers, and whether one of them just opened."""
        value = {BreakerState.OPEN: 1.0, BreakerState.HALF_OPEN: 0.5, BreakerState.CLOSED: 0.0}
        self.breaker_open.labels(backend).set(value[state])
        if opened:
            self.breaker_openings.labels(backend).inc()

    def forget_breaker(self, backend: str) -> None:
        """Report no state for a replica whose breakers are gone: the last one would stay for ever."""
        with suppress(KeyError):
            self.breaker_open.remove(backend)

    def forget_arm(self, experiment: str, arm: str) -> None:
        """Do the same for an arm that is gone."""
        with suppress(KeyError):
            self.arm_off.remove(experiment, arm)

    def forget_warmth(self, backend: str) -> None:
        """Do the same for a replica that is not managed any more."""
        with suppress(KeyError):
            self.warm_level.remove(backend)

    def observe(self, record: RecordedUsage) -> None:
        """Count one attempt."""
        by = (record.model, record.backend, record.status)
        bound = self._bound.get(by)
        if bound is None:
            bound = self._bound[by] = self._bind(*by)
        calls, read, written, cached, cache_written, cost_usd, latency_s = bound
        calls.inc()
        read.inc(record.input_tokens)
        written.inc(record.output_tokens)
        cached.inc(record.cached_tokens)
        cache_written.inc(record.cache_write_tokens)
        cost_usd.inc(float(record.cost_usd))
        latency_s.observe(record.latency_ms / 1000)

    def _bind(self, model: str, backend: str, status: str) -> _Bound:
        """Return the counters of attempts with these labels."""
        return (
            self.calls.labels(model, backend, status),
            self.tokens.labels(model, backend, "input"),
            self.tokens.labels(model, backend, "output"),
            self.tokens.labels(model, backend, "cached"),
            self.tokens.labels(model, backend, "cache_write"),
            self.cost_usd.labels(model, backend),
            self.latency_s.labels(model, backend),
        )
