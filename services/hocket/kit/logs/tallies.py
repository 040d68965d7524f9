"""Counters and histograms that are cheap to update, for events that occur thousands of times a second.

In prometheus-client, each update takes a lock, 1 us for a counter and 3 us for a histogram; here it is a
plain addition. Only one thread may count; the metrics are built when they are scraped.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class Tally(Collector):
    """A counter, by the values of its `labels`."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._told = (name, documentation, labels)
        self._counts: dict[Labels, int] = {}
        registry.register(self)

    def count(self, *values: str) -> None:
        """Count one more under these values of the labels."""
        self._counts[values] = self._counts.get(values, 0) + 1

    def add(self, amount: int, *values: str) -> None:
        """Count some more under these values of the labels, if any."""
        if amount:
            self._counts[values] = self._counts.get(values, 0) + amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the counts as a metric."""
        name, documentation, labels = self._told
        family = CounterMetricFamily(name, documentation, labels=labels)
        for values, count in list(self._counts.items()):
            family.add_metric(values, count)
        yield family


class Distribution(Collector):
    """A histogram, by the values of its `labels`; `buckets` are upper bounds, in order."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._told = (name, documentation, labels)
        self._buckets = tuple(map(float, buckets))
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        registry.register(self)

    def observe(self, amount: float, *values: str) -> None:
        """Add an observation under these values of the labels."""
        counts = self._counts.get(values)
        if counts is None:
            counts = self._counts[values] = [0] * (len(self._buckets) + 1)
            self._sums[values] = 0.0
        counts[bisect_left(self._buckets, amount)] += 1
        self._sums[values] += amount

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the counts as a metric, with cumulative buckets."""
        name, documentation, labels = self._told
        family = HistogramMetricFamily(name, documentation, labels=labels)
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        for values, counts in list(self._counts.items()):
            buckets, below = [], 0
            for bound, count in zip(bounds, counts, strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(values, buckets, self._sums[values])
        yield family
