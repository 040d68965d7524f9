"""The engine's metrics, under vLLM's names and in virtual time."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hocket.emulator.serving import RunningJob, Serving

LATENCY_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640, 2_560)
TOKEN_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5, 40)
LABELS = ("model_name", "engine")


class EngineMetrics:
    """Counters per request, and gauges that are read from the engine when scraped."""

    def __init__(self, serving: Serving, name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = (serving.profile.model, name)
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens read.")
        self._generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self._queries = self._counter("prefix_cache_queries", "Tokens looked up in the cache.")
        self._hits = self._counter("prefix_cache_hits", "Tokens found in the cache.")
        self._success = Counter(
            "vllm:request_success",
            "Requests that ended.",
            (*LABELS, "finished_reason"),
            registry=self.registry,
        )
        self._ttft = self._histogram("time_to_first_token_seconds", LATENCY_BUCKETS_S)
        self._e2e = self._histogram("e2e_request_latency_seconds", LATENCY_BUCKETS_S)
        self._decode = self._histogram("request_decode_time_seconds", LATENCY_BUCKETS_S)
        self._per_token = self._histogram("request_time_per_output_token_seconds", TOKEN_BUCKETS_S)
        self.registry.register(_Gauges(serving, self._labels))

    def finished(self, job: RunningJob, reason: str) -> None:
        """Count a job that finished."""
        assert job.prefilled_ms is not None
        assert job.finished_ms is not None
        self.metered(job)
        self._success.labels(*self._labels, reason).inc()
        decode_s = (job.finished_ms - job.prefilled_ms) / 1000
        self._ttft.observe((job.prefilled_ms - job.submitted_ms) / 1000)
        self._e2e.observe((job.finished_ms - job.submitted_ms) / 1000)
        self._decode.observe(decode_s)
        if job.emitted > 1:
            self._per_token.observe(decode_s / (job.emitted - 1))

    def aborted(self, job: RunningJob) -> None:
        """Count a job whose caller disconnected."""
        self.metered(job)
        self._success.labels(*self._labels, "abort").inc()

    def metered(self, job: RunningJob) -> None:
        """Count the tokens that a job used."""
        if job.prefilled_ms is None:
            return
        prompt_tokens = job.job.prompt_tokens
        self._prompt_tokens.inc(prompt_tokens)
        self._generation_tokens.inc(job.emitted)
        self._queries.inc(prompt_tokens)
        self._hits.inc(job.cached_tokens)

    def _counter(self, name: str, text: str) -> Counter:
        made = Counter(f"vllm:{name}", text, LABELS, registry=self.registry)
        return made.labels(*self._labels)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        text = f"{name.replace('_', ' ').capitalize()}, virtual."
        made = Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry)
        return made.labels(*self._labels)


class _Gauges:
    """Reads the engine's state at each scrape."""

    def __init__(self, serving: Serving, labels: tuple[str, str]) -> None:
        self._serving = serving
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        serving = self._serving
        serving.warmth.advance(serving.clock.now_ms())
        for name, text, value in (
            ("vllm:num_requests_running", "Requests in the batch.", serving.running),
            ("vllm:num_requests_waiting", "Requests waiting to join the batch.", serving.waiting),
            (
                "vllm:kv_cache_usage_perc",
                "Share of the cache held by requests (1 is all of it).",
                serving.cache_usage,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            gauge.add_metric(self._labels, float(value))
            yield gauge
        for name, text, value_ms in (
            (
                "emulator:held_seconds",
                "Virtual time with a machine provisioned.",
                serving.warmth.held_ms,
            ),
            ("emulator:ready_seconds", "Virtual time ready to serve.", serving.warmth.ready_ms),
        ):
            counter = CounterMetricFamily(name, text, labels=LABELS)
            counter.add_metric(self._labels, value_ms / 1000)
            yield counter
