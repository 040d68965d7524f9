"""What would stop a process is refused: 500 templates and schemas, played in a process with limits."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from support.places import TESTS

PLAYER = "support.templates.play_hostile"
MOST_BYTES = 150_000_000
"""An expression of a million characters takes some 80 MB while it is read, shorter ones 16 at most."""
MOST_SQUARES = 100
"""Some 0.5 s on a machine that computes 100,000 squares in 5 ms: five times what is promised;
`bench.resilience.hostile_expressions` tells what it takes."""


@pytest.fixture(scope="module")
def played() -> list[dict[str, Any]]:
    return _play("1")


def test_each_is_refused_or_fails_by_its_own_rules(played: list[dict[str, Any]]) -> None:
    *rows, _ = played
    assert len(rows) >= 500
    assert [row for row in rows if row["outcome"].startswith("RAISED")] == []


def test_nothing_escapes(played: list[dict[str, Any]]) -> None:
    *rows, _ = played
    escapes = [row for row in rows if row["kind"] == "escapes"]
    assert len(escapes) >= 130
    assert [row for row in escapes if not row["outcome"].startswith("refused: ")] == []


def test_none_takes_long(played: list[dict[str, Any]]) -> None:
    *rows, _ = played
    assert [row for row in rows if row["squares"] > MOST_SQUARES] == []


def test_all_together_take_little_memory(played: list[dict[str, Any]]) -> None:
    assert played[-1]["peak_bytes"] < MOST_BYTES


@pytest.mark.long
def test_a_process_that_hashes_texts_differently_counts_the_same(
    played: list[dict[str, Any]],
) -> None:
    one, other = (
        [(row["text"], row["outcome"], row["left"]) for row in rows[:-1]]
        for rows in (played, _play("2"))
    )
    assert one == other


def _play(seed: str) -> list[dict[str, Any]]:
    found = subprocess.run(
        [sys.executable, "-m", PLAYER],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2_000:]
    return [json.loads(line) for line in found.stdout.splitlines()]
