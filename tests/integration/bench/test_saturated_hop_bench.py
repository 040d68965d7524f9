"""The experiment on a saturated hop, over simulated time: what the page about deadlines says of it."""

import argparse
import math

import pytest

from bench.scheduling.saturated_hop import load, simulate


def test_least_slack_keeps_deadlines_that_first_come_first_served_misses_by_their_length() -> None:
    arguments = argparse.Namespace(
        seed=1, seconds=60.0, slots=4, utilisation=0.95, arrivals="bursty"
    )
    plays = simulate(load(arguments), arguments)
    met = {name: share_met(ends) for name, ends in plays.items()}
    assert met["slack"] > 0.99 > met["fifo"]
    for kind, deadline_ms in (("tight", 2_000), ("medium", 8_000), ("loose", 30_000)):
        assert p99_ms(plays["slack"], kind) <= deadline_ms
    assert p99_ms(plays["fifo, patient"], "tight") >= 2 * 2_000


def test_a_hop_that_is_half_idle_makes_orders_equal() -> None:
    arguments = argparse.Namespace(
        seed=1, seconds=20.0, slots=8, utilisation=0.3, arrivals="poisson"
    )
    plays = simulate(load(arguments), arguments)
    assert p99_ms(plays["slack"], "tight") == pytest.approx(p99_ms(plays["fifo"], "tight"), rel=0.1)


def share_met(ends: list) -> float:  # type: ignore[type-arg]
    in_time = [e for e in ends if e.status == "succeeded" and e.latency_ms <= e.task.slo_ms]
    return len(in_time) / len(ends)


def p99_ms(ends: list, kind: str) -> float:  # type: ignore[type-arg]
    times = sorted(
        e.latency_ms if e.status == "succeeded" else math.inf for e in ends if e.task.kind == kind
    )
    return float(times[int(len(times) * 0.99)])
