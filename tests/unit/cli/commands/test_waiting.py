"""Commands with `--wait`: what they wait for, and their exit codes."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hocket.cli.app import app
from hocket.cli.commands.runs import bulk, run, runs
from hocket.cli.terminal import patience
from hocket.cli.terminal.errors import ApiRefused, EndUnknown, exit_code
from support.shared.scripted_api import Answer, Answering, as_json, refusal, scripted_api

RUN_ID = "r" + "0" * 24
RECEIPT = {"run_id": RUN_ID, "pipeline": "p", "status": "accepted", "known": False, "url": "/"}


def hocket(answer: Answering, *words: str) -> Result:
    with scripted_api(answer) as api:
        env = {"HOCKET_API_KEY": "hk_a_b"}
        return CliRunner().invoke(app, ["--api", api.url, *words], env=env)


def beginning(after: int) -> Answering:
    """Return the answers of a platform that knows the new run after so many requests for it."""
    looks = 0

    def answer(asked: str, _body: Any) -> Answer:
        nonlocal looks
        if asked.startswith("POST"):
            return as_json(202, RECEIPT)
        looks += 1
        if looks <= after:
            return refusal(404, "run_unknown", f"There is no run `{RUN_ID}`.")
        return as_json(200, {**RECEIPT, "status": "succeeded", "finished_at": "now"})

    return answer


@pytest.mark.parametrize("operation", ["retry", "rerun"])
def test_a_new_run_is_waited_for_before_it_is_known(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "WAIT_INTERVAL_S", 0.0)
    words = ("runs", operation, RUN_ID, "--wait", "--json")
    done = hocket(beginning(after=3), *words)
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (0, "succeeded")

    monkeypatch.setattr(runs, "WAIT_S", 0.0)
    done = hocket(beginning(after=1_000), *words)
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (3, "accepted")
    done = hocket(beginning(after=1_000), *words[:-1])
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"run {RUN_ID} has not begun yet" in done.stderr


def away(now: dict[str, Any], then: dict[str, Any], after: int) -> Answering:
    """Return the answers of a platform that is away from its second look on, for so many looks."""
    looks = 0

    def answer(asked: str, _body: Any) -> Answer:
        nonlocal looks
        if asked.startswith("POST"):
            return as_json(202, now)
        looks += 1
        if looks == 1:
            return as_json(200, now)
        return refusal(503, "unavailable", "Not now.") if looks < after else as_json(200, then)

    return answer


RUNNING = {**RECEIPT, "status": "running", "finished_at": None}
COUNTS = {"operation_id": "b1", "action": "cancel", "changed": 3, "skipped": 0, "matching": 100}


@pytest.mark.parametrize(
    ("words", "now", "then", "code"),
    [
        (
            ("rerun", RUN_ID),
            RUNNING,
            {**RECEIPT, "status": "succeeded", "finished_at": "now"},
            0,
        ),
        (("rerun", RUN_ID), RUNNING, {**RECEIPT, "status": "failed", "finished_at": "now"}, 1),
        (
            ("bulk-cancel", "-p", "p"),
            {**COUNTS, "state": "running"},
            {**COUNTS, "state": "done"},
            0,
        ),
    ],
    ids=["run", "failed", "bulk"],
)
def test_what_goes_on_is_waited_for_while_the_api_is_away(
    words: tuple[str, ...],
    now: dict[str, Any],
    then: dict[str, Any],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in ((runs, "WAIT_INTERVAL_S"), (bulk, "WAIT_INTERVAL_S"), (runs, "WAIT_S")):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(patience, "INTERVAL_S", 0.0)
    done = hocket(away(now, then, after=6), "runs", *words, "--wait", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (code, then)

    monkeypatch.setattr(patience, "AWAY_S", 0.0)
    done = hocket(away(now, then, after=1_000), "runs", *words, "--wait", "--json")
    assert isinstance(done.exception, EndUnknown)
    assert exit_code(done.exception) == 3
    assert "is not known: Not now. It may go on: `hocket runs " in str(done.exception)


def test_a_run_that_is_deleted_while_it_is_waited_for_does_not_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "WAIT_INTERVAL_S", 0.0)
    answers = iter([as_json(202, RECEIPT), as_json(200, RUNNING)])

    def answer(_asked: str, _body: Any) -> Answer:
        return next(answers, refusal(404, "run_unknown", "There is no run."))

    done = hocket(answer, "runs", "rerun", RUN_ID, "--wait")
    assert isinstance(done.exception, ApiRefused)
    assert str(done.exception) == "There is no run."


def test_a_run_that_goes_on_after_its_timeout_has_no_known_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_follow", lambda *_, **__: None)
    words = ("--nats", "nats://127.0.0.1:1", "run", "p")
    done = hocket(lambda *_: as_json(200, {}), *words)
    assert (done.exit_code, "is still running: hocket runs show r" in done.stderr) == (3, True)


def test_the_end_of_a_run_is_told_though_its_steps_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "WAIT_INTERVAL_S", 0.0)
    looks = 0

    def answer(asked: str, _body: Any) -> Answer:
        nonlocal looks
        looks += 1
        ended = {**RECEIPT, "status": "succeeded", "finished_at": "now"}
        return as_json(200, ended) if looks <= 2 else refusal(503, "unavailable", "Not now.")

    done = hocket(answer, "runs", "rerun", RUN_ID, "--wait")
    assert done.exit_code == 0
    assert f"The run's steps are not shown. Not now.\nrun {RUN_ID} succeeded" in done.stderr


@pytest.mark.parametrize(("state", "exit_code"), [("done", 0), ("stopped", 1)])
def test_a_bulk_operation_that_somebody_stops_has_not_been_done(
    state: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "WAIT_INTERVAL_S", 0.0)

    def answer(asked: str, _body: Any) -> Answer:
        counts = {"changed": 3, "skipped": 0, "matching": 100}
        now = "running" if asked.startswith("POST") else state
        return as_json(200, {"operation_id": "b1", "action": "cancel", "state": now, **counts})

    done = hocket(answer, "runs", "bulk-cancel", "-p", "p", "--wait")
    assert (done.exit_code, f"{state}: 3 changed" in done.stdout) == (exit_code, True)
    done = hocket(answer, "runs", "bulk-cancel", "-p", "p", "--wait", "--json")
    assert (done.exit_code, json.loads(done.stdout)["state"]) == (exit_code, state)
    done = hocket(answer, "runs", "bulk-cancel", "-p", "p")
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("status", "code", "message", "said"),
    [
        (
            422,
            "invalid_input",
            "`version` is not valid: there is no version 7. The latest is 2.",
            None,
        ),
        (403, "forbidden", "This key may not read pipelines.", "127.0.0.1:1"),
        (200, "", "", "127.0.0.1:1"),
    ],
)
def test_a_version_that_the_api_does_not_have_is_refused_before_the_task_is_sent(
    status: int, code: str, message: str, said: str | None
) -> None:
    """Otherwise the task goes to NATS, of which there is none here."""

    def answer(asked: str, _body: Any) -> Answer:
        assert asked == "GET /v1/pipelines/p?version=7"
        return as_json(200, {}) if status == 200 else refusal(status, code, message)

    nats = ("--nats", "nats://127.0.0.1:1")
    done = hocket(answer, *nats, "run", "p", "--version", "7", "--no-wait")
    assert done.exit_code != 0
    assert (said or message) in str(done.exception)


def test_a_run_is_shown_once_the_ledger_has_what_its_sub_runs_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def read(_api: object, _run_id: str) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        booked = "0.2" if looks > 2 else "0"
        cost = {"cost_usd": booked, "nodes": [], "sub_runs": [{"node": "ask"}]}
        run = {"spent_usd": "0.2000000000000000000001"}
        return {"run": run, "steps": [], "cost": cost}

    monkeypatch.setattr(runs, "read_run", read)
    monkeypatch.setattr(runs, "LEDGER_INTERVAL_S", 0.0)
    monkeypatch.setattr(runs, "LEDGER_TIMEOUT_S", 60.0)

    assert runs.settled_run(None, RUN_ID)["cost"]["cost_usd"] == "0.2"  # type: ignore[arg-type]
    assert looks == 3
