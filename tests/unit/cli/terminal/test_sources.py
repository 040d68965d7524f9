"""Files that the command line names: what never ends is refused, what a shell hands over is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.terminal.errors import FileUnreadable
from hocket.cli.terminal.sources import read_text
from hocket.kit.process.config import load
from hocket.kit.process.platform_facts import read_facts
from hocket.schemas.errors import InvalidInput

BOUND_S = 30


def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileUnreadable, match="named pipe"):
        read_text(str(pipe))
    with pytest.raises(InvalidInput, match="named pipe"):
        load(pipe)
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "platform.json")
    assert read_facts(tmp_path) is None


def test_a_configuration_without_an_end_is_too_large() -> None:
    with pytest.raises(InvalidInput, match="larger than"):
        load(Path("/dev/zero"))


def test_a_pipe_of_the_shell_is_read() -> None:
    reading = (
        "import sys; from hocket.cli.terminal.sources import read_text as r; print(r(sys.argv[1]))"
    )
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -c '{reading}' <(echo words)"],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    assert done.stdout.strip() == "words"
