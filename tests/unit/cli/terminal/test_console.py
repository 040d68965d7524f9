"""What commands print for programs: JSON and nothing else, and a line a row."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hocket.cli.terminal.console import print_table
from support.shared.scripted_api import as_json, scripted_api

PRINTS = (
    "from hocket.cli.terminal.console import print_json; "
    "print_json({'name': 'caf\\xe9 \\U0001f600'})"
)


def test_a_row_is_a_line_whatever_its_cells_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("RUN", "REASON"), [("r1", "it failed\nbecause"), ("r2", "")])
    assert capsys.readouterr().out == "RUN  REASON\nr1   it failed because\nr2\n"


RUN = {
    "run_id": "r55460ab64e0ce37df6445d0a",
    "pipeline": "customer-support-triage-and-escalation-europe",
    "version": 12,
    "status": "succeeded",
    "accepted_at": "2026-11-30T08:00:00Z",
    "duration_ms": 6.9,
    "met_deadline": True,
    "spent_usd": "0.00012345",
}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_ids_numbers_and_states_are_whole_on_a_narrow_terminal(
    columns: int, tmp_path: Path
) -> None:
    reading, terminal = pty.openpty()
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": str(columns), "TZ": "UTC"}
    env |= {"TERM": "xterm", "NO_COLOR": "1"}
    with scripted_api(lambda *_: as_json(200, {"runs": [RUN], "next": None})) as api:
        subprocess.run(
            [sys.executable, "-m", "hocket.cli", "--api", api.url, "runs", "list"],
            stdout=terminal,
            timeout=60,
            env=env,
            check=True,
        )
    os.close(terminal)
    lines = re.sub("\x1b\\[[0-9]*m", "", os.read(reading, 4096).decode()).splitlines()
    os.close(reading)
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for word in (RUN["run_id"], "succeeded", "08:00:00", "6.9", "ms", "met", "$0.00012345", "v12"):
        assert word in words


@pytest.mark.parametrize(
    "settings",
    [{"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}, {}],
    ids=str,
)
def test_json_for_programs_is_json_in_any_encoding_and_without_colours(
    settings: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        capture_output=True,
        timeout=60,
        env={**os.environ, **settings},
        check=True,
    )
    assert json.loads(done.stdout.decode(settings.get("PYTHONIOENCODING", "utf-8"))) == {
        "name": "caf\xe9 \U0001f600"
    }


def test_a_name_that_the_terminals_encoding_lacks_is_no_failure(tmp_path: Path) -> None:
    letter = {
        "seq": 1,
        "buried_at": "2026-01-01T00:00:00Z",
        "subject": "s",
        "context": {},
        "error": {"code": "c", "message": "\u6771\u4eac"},
    }
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONIOENCODING": "latin-1"}
    with scripted_api(lambda *_: as_json(200, {"dead_letters": [letter], "next": None})) as api:
        done = subprocess.run(
            [sys.executable, "-m", "hocket.cli", "--api", api.url, "dlq", "list"],
            capture_output=True,
            timeout=60,
            env=env,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"\\u6771\\u4eac\n")


def test_a_pipeline_is_printed_so_that_it_can_be_applied_again(tmp_path: Path) -> None:
    spec = {
        "pipeline": "p",
        "description": "caf\xe9 \u6771\u4eac",
        "nodes": {"a": {"type": "python", "handler": "a:b"}},
    }
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONIOENCODING": "latin-1"}
    with scripted_api(
        lambda *_: as_json(200, {"spec": spec, "version": 1, "versions": [1]})
    ) as api:
        done = subprocess.run(
            [sys.executable, "-m", "hocket.cli", "--api", api.url, "pipeline", "show", "p"],
            capture_output=True,
            timeout=60,
            env=env,
            check=False,
        )
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout.decode("utf-8"))["description"] == spec["description"]
