"""Plays in which runs wait for each other: their limits hold under all faults."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from simulation.bugs.flow import limit_is_not_counted, nobody_looks
from simulation.platform.scenario import FLOWING, play

FIRST, SEEDS = 1, 6


def test_no_seed_shows_a_violation_where_runs_wait_for_each_other() -> None:
    for number in range(FIRST, FIRST + SEEDS):
        violation = play(f"{FLOWING}-{number}").violation
        assert violation is None, f"{violation}: replay it with `play('{FLOWING}-{number}')`"


@pytest.mark.parametrize(
    ("bug", "seed", "check"), [(limit_is_not_counted, 1, "flow-limit"), (nobody_looks, 18, "stuck")]
)
def test_a_bug_of_flow_control_is_caught(
    bug: Callable[[], AbstractContextManager[None]], seed: int, check: str
) -> None:
    violation = play(f"{FLOWING}-{seed}", bug=bug).violation
    assert violation is not None
    assert violation[0] == check
