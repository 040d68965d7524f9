"""The platform under simulated faults: no seed shows a violation, and a seed always gives the same
play."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.bugs.detection import told
from simulation.bugs.planted import BUGS
from simulation.platform.bundles import BUNDLES
from simulation.platform.handlers import CALLING, WAITING
from simulation.platform.scenario import play, seed_of

FIRST, SEEDS, CHUNK = 1, 30, 15
"""Most planted bugs are caught within these (docs/explanation/simulation.md); `make sim` plays as
many as you like."""
FOUND_FAULTS = (
    *(3405, 4263, 4985, 5548, 5567, 6330, 10293, 14303, 15663, 30367, 33220, 38183, 41293),
    *(8056042, 8062469, 17054745, 17362601, 17386787),
    *("bundles-8032823", "bundles-17068456", "bundles-17536554", "calls-17332308"),
)
"""What each of them once revealed is described in docs/explanation/simulation.md."""
TOLD = told()
"""What the page says about the planted bugs."""
SOON = 5
FEW = 6
"""Number of seeds for the other kinds of play."""
HASHES = """
import sys
from simulation.platform.scenario import play
print(*(play(seed).trace_hash for seed in sys.argv[1:]))
"""


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
def test_no_seed_shows_a_violation(first: int) -> None:
    for seed in range(first, first + CHUNK):
        violation = play(str(seed)).violation
        assert violation is None, f"{violation}: replay it with `make sim SEED={seed} SEEDS=1`"


def test_no_seed_shows_a_violation_where_handlers_wait() -> None:
    for number in range(FIRST, FIRST + FEW):
        violation = play(f"{WAITING}-{number}").violation
        assert violation is None, f"{violation}: replay it with `play('{WAITING}-{number}')`"


def test_no_seed_shows_a_violation_where_handlers_call_nodes() -> None:
    for number in range(FIRST, FIRST + FEW):
        violation = play(f"{CALLING}-{number}").violation
        assert violation is None, f"{violation}: replay it with `play('{CALLING}-{number}')`"


def test_no_seed_shows_a_violation_where_steps_come_in_bundles() -> None:
    for number in range(FIRST, FIRST + FEW):
        violation = play(seed_of(BUNDLES, number)).violation
        cure = f"replay it with `make sim KIND={BUNDLES} SEED={number} SEEDS=1`"
        assert violation is None, f"{violation}: {cure}"


@pytest.mark.parametrize("seed", FOUND_FAULTS)
def test_seeds_that_found_a_fault_show_none(seed: int | str) -> None:
    assert play(str(seed)).violation is None


def test_a_seed_is_the_same_play_twice() -> None:
    for seed in ("3", "7", "11", "19", "23"):
        first, second = play(seed), play(seed, verbose=True)
        assert (first.trace_hash, first.steps) == (second.trace_hash, second.steps)


def test_a_seed_is_the_same_play_in_every_interpreter() -> None:
    hashes = {_hashes_with(str(number), ("5", "13", "17")) for number in (0, 1, 4711)}
    assert len(hashes) == 1


def test_seeds_differ() -> None:
    assert play("1").trace_hash != play("2").trace_hash


def test_the_page_tells_of_every_planted_bug() -> None:
    assert list(TOLD) == list(BUGS)


@pytest.mark.parametrize("bug", [bug for bug, one in TOLD.items() if one.check])
def test_a_planted_bug_is_caught_as_the_page_says(bug: str) -> None:
    """For bugs that are caught soon, also checks that no earlier seed catches them."""
    one = TOLD[bug]
    first = 1 if one.seeds <= SOON else one.seeds
    seeds = [seed_of(BUGS[bug].kind, number) for number in range(first, one.seeds + 1)]
    found = [play(seed, bug=BUGS[bug].patch).violation for seed in seeds]
    checks = [violation and violation[0] for violation in found]
    cure = f"`cd tests && python -m simulation.bugs.detection --write {bug}` finds the seed anew"
    assert checks == [None] * (one.seeds - first) + [one.check], cure


def _hashes_with(hash_seed: str, seeds: tuple[str, ...]) -> str:
    """Play seeds in a new interpreter in which sets of strings have a different order."""
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", HASHES, *seeds],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout
