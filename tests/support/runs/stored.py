"""Runs written as rows and read back, and whether they are the same."""

from dataclasses import replace

from immutables import Map

from hocket.coordinator.core.rows.records import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    restore,
    run_of,
    run_row,
    step_of,
    step_row,
)
from hocket.coordinator.core.run.state import Run
from support.run_player import Play


def read_back(play: Play) -> Run:
    run = run_of(dict(zip(RUN_COLUMNS, run_row(play.run), strict=True)))
    rows = [step_row("r1", step) for step in play.run.steps.values()]
    steps = [step_of(dict(zip(STEP_COLUMNS, row, strict=True))) for row in rows]
    return restore(run, steps, play.plan)


def assert_same(found: Run, run: Run) -> None:
    assert set(found.emitted) == set(run.emitted)
    plain = {"emitted": Map(), "armed_at_ms": None}
    assert replace(found, **plain) == replace(run, **plain)
