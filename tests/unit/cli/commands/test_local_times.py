"""Commands show times in the time zone of who looks, all of them in the same."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hocket.cli.commands.access.keys import _state
from support.shared.scripted_api import as_json, scripted_api

AT = "2026-01-01T20:30:00.250000Z"
LINE = {"at": AT, "level": "info", "step": "s", "attempt": 1, "text": "here", "fields": {}}
REPLICA = {
    "replica": "b/1", "backend": "b", "models": ["m"], "in_flight": 0, "limit": 1, "drained": False,
    "gateways": [{"breaker": "closed", "rests_ms": 0, "waiting": 0, "openings": 0}], "level": None,
    "ready_at": None, "changed_at": AT, "warm_until": AT, "by": "me", "reason": "",
}  # fmt: skip


SOON, LATER = "2999-01-01T00:00:00Z", "2999-01-02T00:00:00Z"
NEVER = "9999-12-31T23:00:00Z"


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def shown(home: Path, answer: Any, *arguments: str) -> str:
    env = {**os.environ, "HOME": str(home), "HOCKET_API_KEY": "hk_a_b", "TZ": "Asia/Tokyo"}
    reply = answer if callable(answer) else lambda *_: as_json(200, answer)
    kind = "application/x-ndjson" if "export" in arguments else "application/json"
    with scripted_api(reply, Content_Type=kind) as api:
        command = [sys.executable, "-m", "hocket.cli", "--api", api.url, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_log_lines_and_orders_are_told_in_local_time(tmp_path: Path) -> None:
    lines = {"lines": [LINE], "withheld": False, "next": None}
    assert shown(tmp_path, lines, "logs", "r").startswith("05:30:00.250 info")
    replicas = {"replicas": [REPLICA], "silent": []}
    assert "warm until 2026-01-02 05:30:00, by me" in shown(
        tmp_path, replicas, "gateway", "replicas"
    )


def test_the_former_secret_of_a_key_is_told_to_end_by_the_clocks_here(tmp_path: Path) -> None:
    made = {"key": "hk_a_b", "former_until": AT}
    env = {**os.environ, "HOME": str(tmp_path), "HOCKET_API_KEY": "hk_a_b", "TZ": "Asia/Tokyo"}
    with scripted_api(lambda *_: as_json(200, made)) as api:
        command = [sys.executable, "-m", "hocket.cli", "--api", api.url, "keys", "rotate", "a"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "The former secret is valid until 2026-01-02 05:30:00." in done.stderr
    assert done.stdout == "hk_a_b\n"


def test_a_schedule_is_told_by_the_clocks_here_and_by_those_it_goes_by(tmp_path: Path) -> None:
    schedule = {
        "name": "morning", "cron": "30 6 * * 1-5", "time_zone": "Europe/Berlin", "jitter_s": 30.0,
        "catch_up": "one", "overlap": "skip", "paused": False, "pause_reason": "", "revision": 1,
        "time_field": "as_of", "next": ["2026-11-30T05:30:00Z"],
        "task": {"pipeline": "sort", "labels": {"team": "search"}},
    }  # fmt: skip
    said = shown(tmp_path, schedule, "schedules", "show", "morning").splitlines()
    assert "next         2026-11-30 14:30:00 here, 06:30:00 in Europe/Berlin" in said
    assert "time field   as_of" in said
    assert "policies     catch up one, overlap skip, jitter up to 30 s" in said
    assert "labels       team=search" in said
    said = shown(
        tmp_path, {**schedule, "time_zone": "Asia/Seoul"}, "schedules", "show", "morning"
    ).splitlines()
    assert "next         2026-11-30 14:30:00" in said


@pytest.mark.parametrize("command", ["list", "export"])
def test_runs_are_asked_for_by_every_option_and_times_here(tmp_path: Path, command: str) -> None:
    asked = list[str]()

    def answer(path: str, _body: Any) -> Any:
        asked.append(path)
        return as_json(200, {"runs": [], "next": None})

    options = (
        "--pipeline=sort", "--status=failed", "--since=2026-01-02T05:30", "--until=2026-01-02T06:00",
        "--label=team=search", "--error=timeout", "--missed", "--min-cost=0.05", "--contains=words",
        "--limit=7",
    )  # fmt: skip
    shown(tmp_path, answer, "runs", command, *options)
    asked_for = {name: values[0] for name, values in parse_qs(urlsplit(asked[0]).query).items()}
    asked_for.pop("format", None)
    assert asked_for == {
        "pipeline": "sort", "status": "failed", "since": "2026-01-02T05:30:00+09:00",
        "until": "2026-01-02T06:00:00+09:00", "labels": "team=search", "error_code": "timeout",
        "deadline_missed": "true", "min_cost_usd": "0.05", "contains": "words", "limit": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expires_at", "former_until", "state"),
    [
        (None, None, "valid"),
        (SOON, None, "valid until 2999-01-01 09:00:00"),
        (None, SOON, "two secrets until 2999-01-01 09:00:00"),
        (LATER, SOON, "two secrets until 2999-01-01 09:00:00, one until 2999-01-02 09:00:00"),
        (SOON, SOON, "two secrets until 2999-01-01 09:00:00"),
        (SOON, LATER, "two secrets until 2999-01-01 09:00:00"),
        (LATER, AT, "valid until 2999-01-02 09:00:00"),
        (AT, LATER, "expired"),
        (NEVER, None, "valid until 9999-12-31 23:00:00"),
    ],
    ids=[
        "no-end",
        "ends",
        "rotated",
        "rotated-and-ends",
        "at-once",
        "outlasts",
        "over",
        "expired",
        "last-day",
    ],
)
def test_the_state_of_a_key_says_when_its_secrets_end_by_the_clocks_here(
    in_tokyo: None, expires_at: str | None, former_until: str | None, state: str
) -> None:
    assert (
        _state({"revoked_at": None, "expires_at": expires_at, "former_until": former_until})
        == state
    )
