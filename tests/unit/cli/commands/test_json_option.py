"""Every command that prints data prints JSON for programs with `--json`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.commands.runs.run import _as_told, _whole
from hocket.cli.remote.target import Target
from hocket.cli.remote.task import Task
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunFinished
from hocket.schemas.rest import RunDetail
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api

WITHOUT = {
    "prints JSON, JSON lines or a document of its own anyway": {
        "audit export", "runs export", "gateway status", "import wfformat", "runs record", "schema",
    },
    "prints nothing but that it was done, and REST answers nothing": {
        "context add", "context remove", "context use", "dlq drop", "pipeline delete",
        "schedules delete", "webhooks delete", "login", "logout",
    },
    "prints one line, which is what is wanted": {"console"},
    "goes on until it is stopped, or draws on a terminal": {
        "demo", "dev", "emulate", "mcp", "serve", "up",
    },
}  # fmt: skip


def leaves(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(above), {name for one in command.params for name in one.opts}
        return
    for name, one in below.items():
        yield from leaves(one, (*above, name))


def test_every_command_that_prints_data_takes_json() -> None:
    options = dict(leaves(typer.main.get_command(app)))
    assert len(options) > 100
    without = {name for name, taken in options.items() if "--json" not in taken}
    assert without == set().union(*WITHOUT.values())


def test_a_run_that_is_not_waited_for_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def publish(_url: str, task: Task, **_: object) -> bool:
        return task.run_id != ""

    monkeypatch.setattr("hocket.cli.remote.task.publish", publish)
    asked = ["--nats", "nats://127.0.0.1:1", "run", "p", "--key", "k", "--no-wait"]
    in_json = CliRunner().invoke(app, [*asked, "--json"])
    in_text = CliRunner().invoke(app, asked)
    assert json.loads(in_json.stdout) == {"run_id": in_text.stdout.strip(), "has_begun": True}


def test_a_question_is_not_asked_where_the_result_is_printed() -> None:
    asked = ["data", "delete", "--tenant", "a", "--json"]
    env = {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    done = CliRunner().invoke(app, asked, env=env, input="n\n")
    assert (done.exit_code, done.stdout.strip()) == (1, "n")  # which the runner types
    assert "Permanently delete" in done.stderr


def test_the_end_of_a_run_has_one_form_whether_nats_or_the_api_tells_it() -> None:
    error = ErrorInfo(code="c", message="It failed.")
    fields: dict[str, Any] = {"run_id": "r", "tenant": "t", "pipeline": "p", "version": 3}
    fields |= {"status": "failed", "error": error, "labels": {"customer": "acme"}}
    rest = RunDetail(
        **fields,
        **{"class": "batch"},
        input={},
        spent_usd=Decimal("0.25"),
        accepted_at=datetime(2026, 1, 1, tzinfo=UTC),
        deadline_at=datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC),
        finished_at=datetime(2026, 1, 1, 0, 0, 1, 500_250, tzinfo=UTC),
    )
    moments = {"accepted_at_ms": 1_767_225_600_000.0, "deadline_at_ms": 1_767_225_605_000.0}
    of_nats = RunFinished(
        **fields, **moments, finished_at_ms=1_767_225_601_500.25, cost_usd=Decimal("0.25")
    )
    told = _as_told(rest.model_dump(mode="json", by_alias=True))
    assert RunFinished.model_validate(told) == of_nats
    # said only of an output that is too large for a message
    assert told.keys() == of_nats.model_dump(exclude={"output_left_out"}).keys()


def test_an_output_that_was_too_large_for_the_message_is_read_from_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_API_KEY", "hk_a_b")
    run = {"run_id": "r", "tenant": "t", "pipeline": "p", "version": 1, "status": "succeeded"}
    run |= {"output": "long", "error": None, "labels": None, "spent_usd": "0"}
    run |= dict.fromkeys(("accepted_at", "finished_at", "deadline_at"), "2026-01-01T00:00:00Z")
    left_out = {"run_id": "r", "status": "succeeded", "output": None, "output_left_out": True}
    with scripted_api(lambda *_: as_json(200, run)) as api:
        target = Target(tmp_path, named_api=api.url)
        assert _whole(target, left_out)["output"] == "long"
        assert _whole(target, {"output": None}) == {"output": None}
    assert _whole(Target(tmp_path, is_folder_named=True), left_out) == left_out


def test_letters_that_were_published_before_one_is_refused_are_printed() -> None:
    def answered(asked: str, _body: Any) -> Answer:
        if "/7/" in asked:
            return as_json(200, {"seq": 7, "subject": "hocket.task.a.b"})
        return refusal(404, "dead_letter_unknown", "There is no dead letter 8.")

    with scripted_api(answered) as api:
        asked = ["--api", api.url, "dlq", "redrive", "7", "8", "--json"]
        done = CliRunner().invoke(app, asked, env={"HOCKET_API_KEY": "hk_a_b"})
    assert isinstance(done.exception, ApiRefused)
    assert json.loads(done.stdout) == [{"seq": 7, "subject": "hocket.task.a.b"}]
