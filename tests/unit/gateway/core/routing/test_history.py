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


KIND = ("m", "", "")


def test_slow_is_four_times_the_usual_and_at_least_a_second() -> None:
    durations = CallDurations()
    assert durations.slow_ms("gpu", KIND) is None
    for _ in range(20):
        durations.add_silence(KIND, "gpu", 2_000.0)
        durations.add_silence(KIND, "cpu", 20.0)
    assert (durations.slow_ms("gpu", KIND), durations.slow_ms("cpu", KIND)) == (8_000.0, 1_000.0)


LONG = ("m", "report", "draft")


def test_a_kind_is_judged_by_itself_once_it_is_known_and_streams_apart_from_the_others() -> None:
    durations = CallDurations()
    for _ in range(128):
        durations.add(KIND, "gpu", 20.0)
        durations.add_silence(KIND, "gpu", 20.0)
    assert durations.slow_ms("gpu", LONG) == 1_000.0
    for _ in range(20):
        durations.add_silence(LONG, "gpu", 5_000.0)
    assert (durations.slow_ms("gpu", LONG), durations.slow_ms("gpu", KIND)) == (20_000.0, 1_000.0)
    for _ in range(20):
        durations.add_silence(LONG, "gpu", 100.0, in_pieces=True)
    assert durations.slow_ms("gpu", LONG, in_pieces=True) == 1_000.0
    assert durations.slow_ms("gpu", LONG) == 20_000.0


def test_a_call_in_one_piece_is_not_judged_by_what_streams_are_silent() -> None:
    durations = CallDurations()
    for _ in range(20):
        durations.add(LONG, "gpu", 3_000.0)
        durations.add_silence(LONG, "gpu", 50.0, in_pieces=True)
    assert durations.slow_ms("gpu", LONG) == 12_000.0
    assert durations.slow_ms("gpu", KIND, in_pieces=True) == 1_000.0


def test_a_stream_is_judged_by_other_streams_before_calls_in_one_piece() -> None:
    durations = CallDurations()
    for _ in range(20):
        durations.add(KIND, "gpu", 5_000.0)
        durations.add_silence(KIND, "gpu", 5_000.0)
    assert durations.slow_ms("gpu", LONG, in_pieces=True) == 20_000.0
    for _ in range(20):
        durations.add(LONG, "gpu", 3_000.0)
        durations.add_silence(LONG, "gpu", 50.0, in_pieces=True)
    assert durations.slow_ms("gpu", ("m", "report", "title"), in_pieces=True) == 1_000.0


def test_a_pace_is_judged_by_the_same_kind_only() -> None:
    durations = CallDurations()
    for count in range(20):
        assert durations.slow_pace_ms("gpu", KIND) is None, count
        durations.add_pace(KIND, "gpu", 20.0)
    assert durations.slow_pace_ms("gpu", KIND) == 80.0
    assert durations.slow_pace_ms("gpu", LONG) is None
    assert durations.slow_pace_ms("cpu", KIND) is None
