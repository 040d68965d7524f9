"""The new core does what the coordinator's does, and the oracle sees where it does not."""

from collections.abc import Callable
from typing import Any

import pytest

from hocket.coordinator.core.machine import ending
from hocket.coordinator.core.machine.constructs import leaf, races, results
from hocket.coordinator.core.machine.state import restore
from simulation.engine.swaps import swapped
from simulation.oracle.constructs import SUPPORTED
from simulation.oracle.play import compared
from simulation.oracle.shadow import Report

SEEDS = range(1, 9)


def test_both_cores_do_the_same() -> None:
    report = Report()
    for seed in SEEDS:
        report.add(compared(str(seed)))
    assert not report.found, "\n".join(map(str, report.found))
    assert report.counts["ends"] > 30
    assert report.runs_with.keys() <= SUPPORTED


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
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_found(place: Any, name: str, mistake: Callable[..., Any]) -> None:
    with swapped((place, name, mistake)):
        assert any(compared(str(seed)).found for seed in SEEDS)
