"""Quantiles over what was seen lately, against a sort of the same values."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.routing.history import MAX_SAMPLES, CallDurations, History, Samples


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=400), st.floats(0.01, 1))
def test_a_quantile_is_that_of_the_last_values(values: list[float], q: float) -> None:
    samples = Samples()
    for value in values:
        samples.add(value)
    last = sorted(values[-MAX_SAMPLES:])
    assert samples.quantile(q) == last[max(math.ceil(q * len(last) - 1e-6), 1) - 1]
    assert len(samples) == len(last)


def test_the_key_not_seen_for_longest_is_forgotten() -> None:
    history: History[str] = History(max_keys=2)
    for key in ("a", "b", "a", "c"):
        history.add(key, 1.0)
    assert [history.count(key) for key in ("a", "b", "c")] == [2, 0, 1]


def test_a_rare_kind_answers_with_its_model() -> None:
    durations = CallDurations()
    for _ in range(20):
        durations.add(("writer", "report", "draft"), "gpu", 100.0)
    durations.add(("writer", "report", "title"), "gpu", 5.0)
    kinds = [("writer", "report", "draft"), ("writer", "report", "title"), ("editor", "", "")]
    assert [durations.of_kind(kind, 0.5) for kind in kinds] == [100.0, 100.0, None]


def test_slow_is_four_times_the_usual_and_at_least_a_second() -> None:
    durations = CallDurations()
    assert durations.slow_ms("gpu") is None
    for _ in range(20):
        durations.add(("m", "", ""), "gpu", 2_000.0)
        durations.add(("m", "", ""), "cpu", 20.0)
    assert (durations.slow_ms("gpu"), durations.slow_ms("cpu")) == (8_000.0, 1_000.0)
