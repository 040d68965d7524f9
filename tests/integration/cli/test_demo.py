"""The demo as a new user runs it: right figures twice, an honest "not in the data" once, a tampered
figure caught. The expected figures come from the installed package, not through Hocket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from molmass import ELEMENTS

TIMEOUT_S = 110


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [Path(sys.executable).parent / "hocket", "demo", "--data-dir", folder / "d"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answer(printed: str, number: int) -> str:
    return printed.split(f"Question {number} ")[1].split("Verifier:")[0]


def test_the_first_question_gets_the_right_figure_with_its_source(printed: str) -> None:
    (gold,) = (element for element in ELEMENTS if element.name == "Gold")
    assert f"{gold.tmelt:g} K. [S1" in answer(printed, 1)
    assert "gold" in answer(printed, 1).lower()


def test_the_second_question_gets_the_densest_elements_in_order(printed: str) -> None:
    solid = [element for element in ELEMENTS if not element.tboil or element.tboil > 295]
    densest = sorted(solid, key=lambda element: -element.density)[:5]
    places = [
        answer(printed, 2).index(f"{e.name} \N{EN DASH} density: {e.density:g}") for e in densest
    ]
    assert places == sorted(places)


def test_the_third_question_is_not_in_the_data(printed: str) -> None:
    assert "Not in the data" in answer(printed, 3)


def test_a_tampered_figure_is_rejected(printed: str) -> None:
    assert "Verifier: rejected" in printed.split("Tampering")[1]


def test_timeline_and_cost_are_printed(printed: str) -> None:
    assert printed.count("DEADLINE    SLACK") == 3
    assert printed.count("TOKENS IN") == 3
    assert "Look around" in printed
