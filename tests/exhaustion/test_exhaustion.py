"""Short plays of shortages on one real platform; `make exhaustion` plays all of them, and for longer."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from exhaustion.play import ON_A_DISK, PLAYS, POSTGRES, ROOM_S
from exhaustion.small_disk import mounts_are_allowed

OPTIONS = ("--seconds", "3", "--rate", "6")
"""Few tasks per second: the shortages do not depend on the load."""
NAMES = [name for name in PLAYS if ON_A_DISK.get(name) != POSTGRES]
PATIENCE = 4
"""How many times longer a process may take to start beside other tests; `make exhaustion` does not need
this."""
BOUND_S = 300
TESTS = Path(__file__).resolve().parent.parent
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(BOUND_S),
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of other processes"),
]
needs_a_disk = pytest.mark.skipif(
    not mounts_are_allowed(), reason="no file system can be mounted here: needs root"
)


@pytest.fixture(scope="module")
async def plays() -> dict[str, dict[str, Any]]:
    """The results of each play, by name; all on one platform."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "exhaustion", *OPTIONS, *NAMES),
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    lines = [line for line in output.decode().splitlines() if line.startswith("{")]
    assert lines, output.decode()[-4_000:]
    return {played["name"]: played for played in map(json.loads, lines)}


@needs_a_disk
def test_a_full_disk_loses_nothing_and_all_goes_on_when_there_is_room(
    plays: dict[str, dict[str, Any]],
) -> None:
    played = plays["disk-full"]
    held(played)
    assert "disk: " in str(played["said"]["coordinator"])


@needs_a_disk
def test_before_the_disk_is_full_intake_stops_and_doors_say_when_to_come_back(
    plays: dict[str, dict[str, Any]],
) -> None:
    played = plays["disk-low"]
    held(played)
    assert "intake: pausing: No new work is accepted" in str(played["said"]["coordinator"])
    assert played["refused"] == {"code": "disk_low", "retry_after": "5"}
    assert "disk" in json.loads(played["health"])


@pytest.mark.parametrize("name", ["postgres-connections", "nats-connections", "handles", "memory"])
def test_what_runs_out_for_a_while_costs_nothing_that_was_accepted(
    name: str, plays: dict[str, dict[str, Any]]
) -> None:
    held(plays[name])


def held(played: dict[str, Any]) -> None:
    assert played["violations"] == []
    assert played["first_end_after_s"] <= PATIENCE * ROOM_S
    assert played["accepted"] > 0
