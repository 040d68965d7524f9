"""Counters and histograms that are cheap to raise tell what prometheus-client's own would tell."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from hocket.kit.logs.tallies import Distribution, Tally


def told(registry: CollectorRegistry) -> list[str]:
    """What is told, without when it was begun."""
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


def test_a_tally_tells_what_a_counter_tells() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("hocket_x", "Some.", ["kind", "how"], registry=ours)
    counter = Counter("hocket_x", "Some.", ["kind", "how"], registry=theirs)
    for values in (("a", "b"), ("a", "c"), ("a", "b")):
        tally.count(*values)
        counter.labels(*values).inc()
    assert told(ours) == told(theirs)
    assert ours.get_sample_value("hocket_x_total", {"kind": "a", "how": "b"}) == 2


def test_a_distribution_tells_what_a_histogram_tells() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bounds = (0.001, 0.5, 1, 10)
    distribution = Distribution("hocket_y", "Some.", ["kind"], buckets=bounds, registry=ours)
    histogram = Histogram("hocket_y", "Some.", ["kind"], buckets=bounds, registry=theirs)
    for amount in (0.0, 0.001, 0.25, 1.0, 1.5, 11.0):
        distribution.observe(amount, "a")
        histogram.labels("a").observe(amount)
    assert told(ours) == told(theirs)
    assert ours.get_sample_value("hocket_y_bucket", {"kind": "a", "le": "1.0"}) == 4
