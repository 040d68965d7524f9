"""Moments are whole microseconds, and Postgres gives back what it was given."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS
from hocket.coordinator.core.run.state.rows import run_row, step_row
from hocket.coordinator.core.time.timestamps import nearest, not_before
from hocket.schemas.errors import ErrorClass, ErrorInfo
from support.run_player import Play, python

EPOCH_MS = st.floats(min_value=1.6e12, max_value=2**41 - 10_000)
"""Until September 2039: from then on a float of milliseconds is less than half a microsecond exact."""


def through_postgres(at_ms: float) -> float:
    """What `to_timestamp(ms / 1000)` keeps and `extract(epoch ...) * 1000` gives back."""
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(at_ms / 1_000 * 1e6))
    us = (kept - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return us / 1_000


@given(EPOCH_MS)
def test_a_timer_that_has_come_is_due_within_a_microsecond(at_ms: float) -> None:
    moment = not_before(at_ms)
    assert at_ms <= moment <= at_ms + 0.0015
    assert not_before(moment) == moment


@given(EPOCH_MS)
def test_a_moment_is_read_back_as_it_was_written(at_ms: float) -> None:
    for moment in (not_before(at_ms), nearest(at_ms)):
        assert through_postgres(moment) == moment


@given(EPOCH_MS, st.floats(min_value=0.0, max_value=3.0))
def test_every_time_that_a_run_keeps_is_a_whole_microsecond(at_ms: float, later_ms: float) -> None:
    """Else a run that was read back decides by another deadline than the one that was written."""
    expect = {"mean_ms": 100.0001, "sd_ms": 30.7}
    play = Play(
        {
            "a": python(retry={"max_attempts": 2, "backoff_ms": 7}, fast=python(), expect=expect),
            "g": {"type": "graph", "timeout_ms": 50, "nodes": {"x": python(expect=expect)}},
            "s": {"type": "signal", "signal": "go", "wait_ms": 11},
            "c": python(cache={"ttl_ms": 1_000}, expect=expect),
            "z": python(needs=["a"], expect=expect),
        },
        spec={"slo_ms": 1_000, "on_infeasible": "degrade"},
        now_ms=at_ms,
    )
    play.now_ms += later_ms
    play.finish("a", error=ErrorInfo(code="b", message="b", error_class=ErrorClass.TRANSIENT))
    rows = [(RUN_COLUMNS, run_row(play.run))]
    rows += [(STEP_COLUMNS, step_row("r1", step)) for step in play.run.steps.values()]
    times = [step.give_up_at_ms for step in play.run.steps.values()]
    for columns, row in rows:
        kinds = zip(columns.values(), row, strict=True)
        times += [value for kind, value in kinds if kind == "timestamptz"]
    kept = [time for time in times if time is not None]
    assert len(kept) > 10
    assert all(through_postgres(time) == time for time in kept)
