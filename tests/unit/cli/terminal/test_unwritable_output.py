"""A command whose standard output cannot be written says so in one line, without a traceback."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

import pytest

COMMANDS = (["version"], ["version", "--json"], ["schema"])


def ended(
    command: Sequence[str], buffered: bool, output: int | IO[bytes]
) -> "subprocess.CompletedProcess[bytes]":
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-m", "hocket.cli", *command],
        env=env if buffered else {**env, "PYTHONUNBUFFERED": "1"},
        stdout=output,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_told_in_a_line(command: list[str], buffered: bool) -> None:
    with open("/dev/full", "wb") as full:
        done = ended(command, buffered, full)
    told = done.stderr.decode()
    assert told.startswith("Error: What this command says cannot be written: No space left")
    assert (done.returncode, told.count("\n")) == (1, 1)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_seen_enough_is_no_error(command: list[str], buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = ended(command, buffered, writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_closed_output_is_written_to_nowhere(command: list[str]) -> None:
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "hocket.cli", *command]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
