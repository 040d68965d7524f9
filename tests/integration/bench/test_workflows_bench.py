"""Real workflow DAGs on the real stack: a part of what `make workflows` runs, and its judge."""

import os

import pytest

from bench.throughput.workflows import (
    FOLDER,
    PER_LEVEL_MS,
    DoesNotHold,
    Instance,
    check,
    instances,
    run_all,
)

TRIES = 5
"""A busy machine only ever makes a run slower; one of so many must be fast enough."""
LONG_S = 2.0
"""Workflows of at least this long are first played side by side: one that is slow so is played alone."""
WHOLE_SET = 45
CHOSEN = (
    "helloworld",
    "blast-chameleon-small-001",
    "blast-chameleon-medium",
    "bwa",
    "airrflow",
    "scrnaseq",
    "viralrecon",
    "1000genome-chameleon-2ch",
    "1000genome-chameleon-22ch-250k",
    "cycles-chameleon-1l",
    "epigenomics-chameleon-ilmn",
    "montage-chameleon-2mass-005d",
    "montage-chameleon-2mass-025d",
    "seismology",
    "srasearch-chameleon-10a-005",
)
"""Every kind of workflow that has one of 9 s or less, the deepest (25) and the largest (902 tasks)."""

DIAMOND = Instance(
    "diamond",
    {},
    {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
    {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.0},
)
BEGINS = {"a": [0.0], "b": [0.1], "c": [0.11], "d": [0.5]}
ENDS = {"a": [0.1], "b": [0.31], "c": [0.45], "d": [0.5]}


BESIDE = 3.0
"""Other tests run beside this one, and how a level of 300 tasks shares two cores with them is not
what is tested here: `make workflows` runs alone, and allows nothing."""


def crowding() -> float:
    """Return how many times as long a level may take, where others want the cores too."""
    return BESIDE * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.long
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the workflows are not in {FOLDER}")
async def test_real_workflows_run_each_task_once_in_order_and_near_their_critical_path() -> None:
    assert len(instances()) == WHOLE_SET
    chosen = instances(CHOSEN)
    assert len(chosen) == len(CHOSEN)
    outcomes = await run_all(
        chosen,
        workers=1,
        tries=TRIES,
        per_level_ms=PER_LEVEL_MS * crowding(),
        long_s=LONG_S,
    )
    slow = [
        f"{tries[0].instance.name}: {[round(t.makespan_ms) for t in tries]} ms,"
        f" bound {tries[0].bound_ms:.0f} ms"
        for tries in outcomes
        if not any(outcome.holds for outcome in tries)
    ]
    assert slow == []


def test_the_longest_path_counts_time_and_the_longest_chain_levels() -> None:
    assert DIAMOND.path_s == pytest.approx(0.4)
    assert DIAMOND.levels == 3
    assert DIAMOND.bound_ms() == pytest.approx(1.05 * 400 + 3 * 20 + 4 * 0.1)


def test_a_journal_without_fault_passes() -> None:
    check(DIAMOND, BEGINS, ENDS)


@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        ({"b": []}, {}, "`b` began and ended (0, 1) times"),
        ({}, {"d": []}, "`d` began and ended (1, 0) times"),
        ({"c": [0.11, 0.12]}, {}, "`c` began and ended (2, 1) times"),
        ({"z": [0.1]}, {"z": [0.2]}, "`z` is no task of it"),
        ({"d": [0.44]}, {}, "`d` began before `c` had ended"),
        ({}, {"c": [0.4]}, "`c` took"),
    ],
)
def test_a_task_that_was_lost_doubled_too_early_or_too_short_is_found(
    begins: dict[str, list[float]], ends: dict[str, list[float]], said: str
) -> None:
    with pytest.raises(DoesNotHold) as caught:
        check(DIAMOND, BEGINS | begins, ENDS | ends)
    assert said in str(caught.value)
