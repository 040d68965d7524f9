"""The new core does what the coordinator's does, and the oracle sees where it does not."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import pytest

from hocket.coordinator.core.machine import ending, machine, work
from hocket.coordinator.core.machine.constructs import (
    caching,
    graph,
    leaf,
    maps,
    races,
    results,
)
from hocket.coordinator.core.machine.state import restore
from simulation.engine.swaps import swapped
from simulation.oracle.constructs import SUPPORTED
from simulation.oracle.drive import driven
from simulation.oracle.play import compared
from simulation.oracle.shadow import Report

PLAYS = range(1, 5)
DRIVES = range(1, 41)


def test_both_cores_do_the_same_in_plays() -> None:
    report = _compared(compared, PLAYS)
    assert not report.found, "\n".join(map(str, report.found))
    assert report.counts["ends"] > 15


def test_both_cores_do_the_same_with_random_events() -> None:
    report = _compared(driven, DRIVES)
    assert not report.found, "\n".join(map(str, report.found))
    assert report.counts["ends"] > 200
    assert report.runs_with.keys() == SUPPORTED


def test_an_event_that_broke_off_is_applied_anew_to_the_run_that_its_rows_have() -> None:
    report = _compared(partial(driven, breaks=True), DRIVES[:25])
    assert not report.found, "\n".join(map(str, report.found))
    assert report.counts["broken off"] > 30


def _compared(play: Callable[[str], Report], seeds: range) -> Report:
    report = Report()
    for seed in seeds:
        report.add(play(str(seed)))
    return report


def _nothing(*arguments: Any, **named: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (races, "cancel_below", _nothing),
        (results, "_count", _nothing),
        (leaf, "_join_left", lambda step: 1),
        (ending, "critical_path", lambda run, at_ms: []),
        (restore, "_count_done", _nothing),
        (maps, "check_items", _nothing),
        (caching, "_patience_ms", lambda t, step: 1_000.0),
        (graph, "_degrade", _nothing),
        (work, "resume_deadline", lambda t: False),
        (leaf, "is_forced", lambda run, step: False),
        (machine, "next_due_ms", lambda run: inf),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_found(place: Any, name: str, mistake: Callable[..., Any]) -> None:
    with swapped((place, name, mistake)):
        assert any(driven(str(seed)).found for seed in DRIVES)
