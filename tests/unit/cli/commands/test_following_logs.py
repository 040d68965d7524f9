"""`hocket logs --follow` shows each line of a run once, in whichever order lines come."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.cli.commands.runs import logs
from hocket.cli.terminal import patience
from hocket.cli.terminal.errors import ApiRefused, EndUnknown
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api

PAGE = 3
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def line(at_s: float, text: str) -> dict[str, Any]:
    at = (BEGAN + timedelta(seconds=at_s)).isoformat()
    return {"at": at, "level": "info", "step": "s", "attempt": 1, "text": text, "fields": {}}


def followed(monkeypatch: pytest.MonkeyPatch, *come: list[dict[str, Any]], ends: int) -> list[str]:
    """Return the texts that are printed of lines that come between one look and the next, of a run that
    has ended when it is looked at for the time `ends`."""
    kept: list[dict[str, Any]] = []
    looks = 0

    def pause(_: float) -> None:
        kept.extend(come[looks] if looks < len(come) else [])
        kept.sort(key=lambda one: str(one["at"]))

    def answer(asked: str, _: Any) -> Answer:
        nonlocal looks
        if "/logs" not in asked:
            looks += 1
            return as_json(200, {"finished_at": str(BEGAN) if looks >= ends else None})
        place = re.search(r"after=([^&]+)", asked)
        begin = 0
        if place:
            begin = next(i for i, one in enumerate(kept) if one["text"] == place[1]) + 1
        page = kept[begin : begin + PAGE]
        has_next = len(kept) > begin + PAGE
        told = {"lines": page, "next": page[-1]["text"] if has_next else None, "withheld": False}
        return as_json(200, told)

    monkeypatch.setattr(logs.time, "sleep", pause)
    pause(0)
    with scripted_api(answer) as api:
        done = CliRunner().invoke(
            cli, ["--api", api.url, "logs", "r", "-f"], env={"HOCKET_API_KEY": "hk_a_b"}
        )
    assert done.exit_code == 0, done.output
    return [said.split()[-1] for said in done.output.splitlines()]


def test_a_line_that_comes_after_a_later_one_is_shown_and_none_is_shown_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = [line(at, f"b{at}") for at in range(1, 6)]
    shown = followed(
        monkeypatch, first, [line(2.5, "late")], [line(60, "minute")], [line(61, "last")], ends=4
    )
    assert shown == ["b1", "b2", "b3", "b4", "b5", "late", "minute", "last"]


def test_the_lines_that_come_a_moment_after_the_runs_end_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert followed(monkeypatch, [line(1, "a")], [line(2, "b")], ends=1) == ["a", "b"]


def late(begins: int) -> Any:
    """Return the answers of a platform that knows the run when it is looked at for the time `begins`."""
    looks = 0

    def answer(asked: str, _: Any) -> Answer:
        nonlocal looks
        looks += "/logs" not in asked
        if looks < begins:
            return refusal(404, "run_unknown", "There is no run.")
        lines = {"lines": [line(1, "a")], "next": None, "withheld": False}
        return as_json(200, lines if "/logs" in asked else {"finished_at": str(BEGAN)})

    return answer


def follow(run_id: str, answer: Any) -> Any:
    with scripted_api(answer) as api:
        words = ["--api", api.url, "logs", run_id, "-f"]
        return CliRunner().invoke(cli, words, env={"HOCKET_API_KEY": "hk_a_b"})


def test_a_run_that_has_not_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs.time, "sleep", lambda _: None)
    run_id = "r" + "0" * 24
    done = follow(run_id, late(4))
    assert (done.exit_code, done.stdout.split()[-1]) == (0, "a")
    assert done.stderr.count(f"There is no run {run_id} yet.") == 1

    monkeypatch.setattr(logs, "APPEAR_S", 0.0)
    done = follow(run_id, late(1_000))
    assert (done.exit_code, done.stdout) == (1, "")


def test_what_is_no_id_of_a_run_is_not_waited_for() -> None:
    done = follow("order-7", late(1_000))
    assert (done.exit_code, done.output) == (1, "")


@pytest.mark.parametrize("place", ["/logs", "/runs/r"])
def test_lines_are_followed_while_the_api_is_away(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs.time, "sleep", lambda _: None)
    asked_of = {"/logs": 0, "/runs/r": 0}

    def answer(asked: str, _: Any) -> Answer:
        here = "/logs" if "/logs" in asked else "/runs/r"
        asked_of[here] += 1
        if here == place and 1 < asked_of[here] < 5:
            return refusal(503, "unavailable", "Not now.")
        if here == "/logs":
            return as_json(200, {"lines": [line(1, "a")], "next": None, "withheld": False})
        has_ended = asked_of[here] > 5
        return as_json(200, {"finished_at": str(BEGAN) if has_ended else None})

    done = follow("r", answer)
    assert (done.exit_code, done.stdout.split()[-1]) == (0, "a")
    assert done.stdout.count("\n") == 1

    asked_of |= {"/logs": 0, "/runs/r": 0}
    monkeypatch.setattr(patience, "AWAY_S", 0.0)
    assert isinstance(follow("r", answer).exception, EndUnknown)


def test_the_end_of_a_run_that_had_ended_is_known_though_its_lines_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs.time, "sleep", lambda _: None)
    monkeypatch.setattr(patience, "AWAY_S", 0.0)
    asked_of_lines = 0

    def answer(asked: str, _: Any) -> Answer:
        nonlocal asked_of_lines
        if "/logs" not in asked:
            return as_json(200, {"finished_at": str(BEGAN)})
        asked_of_lines += 1
        if asked_of_lines > 1:
            return refusal(503, "unavailable", "Not now.")
        return as_json(200, {"lines": [], "next": None, "withheld": False})

    done = follow("r", answer)
    assert isinstance(done.exception, ApiRefused)
    assert str(done.exception) == "Not now."


HOSTILE = "Größe 高 \x1b[2J\x9b2J\u202etxt \ud83d"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lines_in_every_script_are_shown_as_logged_and_nothing_in_them_acts_on_the_terminal(
    tmp_path: Path, encoding: str
) -> None:
    logged = line(0, HOSTILE) | {"fields": {"said": HOSTILE, "list": [HOSTILE]}}
    told = {"lines": [logged], "next": None, "withheld": False}
    env = {**os.environ, "HOME": str(tmp_path), "HOCKET_API_KEY": "hk_a_b"}
    env["PYTHONIOENCODING"] = encoding
    with scripted_api(lambda *_: as_json(200, told)) as api:
        command = [sys.executable, "-m", "hocket.cli", "--api", api.url, "logs", "r"]
        for options in ([], ["--json"]):
            done = subprocess.run([*command, *options], env=env, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
            said = done.stdout.decode(encoding)
            assert not set(said) & set("\x1b\x9b\u202e")
            if encoding == "utf-8":
                assert said.count("Größe 高") == 3
            if options:
                assert json.loads(said) == logged
