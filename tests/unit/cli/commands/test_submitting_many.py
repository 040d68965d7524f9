"""`hocket runs submit`: what is sent, and what is told about each line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.admin.app import MAX_BODY_BYTES
from hocket.cli.commands.runs.bulk import TASKS_AT_ONCE
from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, ScriptedApi, as_json, refusal, scripted_api

UNKNOWN = "There is no pipeline `[x/y]`."


def answered(asked: str, body: Any) -> Answer:
    runs = [_receipt(one["pipeline"]) for one in body["runs"]]
    return as_json(202, {"accepted": sum(not one["error"] for one in runs), "runs": runs})


def _receipt(pipeline: str) -> dict[str, Any]:
    error = {"code": "pipeline_unknown", "message": UNKNOWN} if pipeline == "none" else None
    return {"run_id": None if error else "r", "error": error}


def submit(api: ScriptedApi, file: Path) -> Any:
    env = {"HOME": str(file.parent), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    return run_hocket("--api", api.url, "runs", "submit", str(file), env=env)


def test_a_refused_task_is_told_by_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('\n{"pipeline": "p"}\n\n\n{"pipeline": "none"}\n')
    with scripted_api(answered) as api:
        done = submit(api, file)

    assert done.stdout == "1 of 2 tasks were accepted\n"
    assert done.stderr == f"line 5: {UNKNOWN}\n"
    assert done.returncode == 1


def test_nothing_is_sent_if_a_later_line_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"pipeline": "p"}\n' * TASKS_AT_ONCE + '{"pipeline": "p"\n')
    with scripted_api(answered) as api:
        done = submit(api, file)

    assert f"`line {TASKS_AT_ONCE + 1}` is not valid" in done.stderr
    assert (done.returncode, api.asked) == (2, [])


def test_what_was_accepted_before_an_error_is_told(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"pipeline": "p"}\n' * (TASKS_AT_ONCE + 1))

    def fails_later(asked: str, body: Any) -> Answer:
        if len(body["runs"]) < TASKS_AT_ONCE:
            return refusal(503, "disk_low", "The disk is full.")
        return answered(asked, body)

    with scripted_api(fails_later) as api:
        done = submit(api, file)

    said = f"{TASKS_AT_ONCE} tasks were accepted from the lines before line {TASKS_AT_ONCE + 1}"
    assert said in done.stderr
    assert "The disk is full." in done.stderr
    assert done.returncode == 1
    assert json.dumps(api.asked[1][1]) == '{"runs": [{"pipeline": "p"}]}'


@pytest.mark.parametrize("interrupted", [False, True])
def test_receipts_are_not_lost_if_a_later_portion_fails(tmp_path: Path, interrupted: bool) -> None:
    file = tmp_path / "tasks.jsonl"
    first = '{"pipeline": "p"}\n{"pipeline": "none"}\n'
    file.write_text(first + '{"pipeline": "p"}\n' * (TASKS_AT_ONCE - 1))

    def fails_later(asked: str, body: Any) -> Answer:
        if len(body["runs"]) == TASKS_AT_ONCE:
            return answered(asked, body)
        if interrupted:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        return refusal(503, "disk_low", "The disk is full.")

    with scripted_api(fails_later) as api:
        process = started("--api", api.url, "runs", "submit", str(file), "--json", home=tmp_path)
        out, err = process.communicate(timeout=60)

    assert [one["run_id"] for one in json.loads(out)] == ["r", None, *["r"] * (TASKS_AT_ONCE - 2)]
    assert f"line 2: {UNKNOWN}" in err
    assert f"{TASKS_AT_ONCE - 1} tasks were accepted from the lines before line 501" in err
    assert process.returncode == (130 if interrupted else 1)


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        (("runs", "retry", "old"), {"run_id": "r-new", "status": "running", "finished_at": None}),
        (("runs", "rerun", "old"), {"run_id": "r-new", "status": "running", "finished_at": None}),
        (("runs", "bulk-cancel", "--all"), {"operation_id": "b-new", "state": "running"}),
    ],
    ids=["retry", "rerun", "bulk-cancel"],
)
def test_what_a_command_began_is_told_before_it_waits(
    tmp_path: Path, words: tuple[str, ...], begun: dict[str, Any]
) -> None:
    def never_ends(asked: str, _body: Any) -> Answer:
        if asked.startswith("GET"):
            process.send_signal(signal.SIGINT)
            process.wait(30)
        return as_json(202, begun)

    with scripted_api(never_ends) as api:
        process = started("--api", api.url, *words, "--wait", "--json", home=tmp_path)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert next(iter(begun.values())) in err


def started(*words: str, home: Path) -> "subprocess.Popen[str]":
    """Start a command that a test interrupts."""
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    return subprocess.Popen(
        [sys.executable, "-m", "hocket.cli", *words],
        env=env | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_requests_are_as_small_as_the_lines_whatever_the_language(tmp_path: Path) -> None:
    lines = [{"pipeline": "p", "input": {"text": "\u0449" * 200_000, "list": [1] * 20_000}}] * 3
    file = tmp_path / "tasks.jsonl"
    texts = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)
    file.write_text("\n".join(texts), encoding="utf-8")
    with scripted_api(answered) as api:
        done = submit(api, file)

    assert done.stdout == "3 of 3 tasks were accepted\n"
    assert [len(body["runs"]) for _, body in api.asked] == [2, 1]
    assert max(api.sizes) <= MAX_BODY_BYTES
    assert api.asked[1][1]["runs"] == lines[:1]
