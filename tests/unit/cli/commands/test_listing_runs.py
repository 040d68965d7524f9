"""Lists of commands: the API tells them in pages, and a search covers a part of the runs at a time."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.commands.runs import runs
from support.shared.commands import run_hocket
from support.shared.scripted_api import Answer, as_json, scripted_api


def run(number: int) -> dict[str, Any]:
    return {"run_id": f"r{number}"}


PAGES: dict[str | None, tuple[list[dict[str, Any]], str | None]] = {
    None: ([run(9)], "8:r8"),
    "8:r8": ([], "5:r5"),
    "5:r5": ([run(4), run(3)], "2:r2"),
}


def answered(asked: str, _body: Any) -> Answer:
    query = parse_qs(urlsplit(asked.partition(" ")[2]).query)
    runs, more = PAGES[query.get("after", [None])[0]]
    return as_json(200, {"runs": runs[: int(query["limit"][0])], "next": more})


def test_a_search_goes_on_where_a_page_of_it_ended_until_enough_is_found(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(answered) as api:
        done = run_hocket(
            "--api", api.url, "runs", "list", "--contains", "Ada", "--limit", "2", "--json", env=env
        )
    assert json.loads(done.stdout) == [run(9), run(4)], done.stderr
    assert len(api.asked) == 3


LISTS = {
    ("flow", "list"): "queues",
    ("flow", "runs"): "runs",
    ("runs", "approvals"): "approvals",
    ("runs", "bulk-show"): "operations",
    ("webhooks", "list"): "webhooks",
    ("schedules", "list"): "schedules",
}


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_a_list_has_what_all_pages_have(tmp_path: Path, words: tuple[str, ...]) -> None:
    def paged(asked: str, _body: Any) -> Answer:
        after = parse_qs(urlsplit(asked).query).get("after", ["0"])[0]
        more = None if after == "2" else str(int(after) + 1)
        return as_json(200, {LISTS[words]: [{"number": after}], "next": more})

    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(paged) as api:
        done = run_hocket("--api", api.url, *words, "--json", env=env)
    assert [one["number"] for one in json.loads(done.stdout)] == ["0", "1", "2"], done.stderr


def test_approvals_are_listed_by_a_server_that_has_them_on_one_page(tmp_path: Path) -> None:
    def without_pages(asked: str, _body: Any) -> Answer:
        unknown = [name for name in parse_qs(urlsplit(asked).query) if name != "run"]
        return as_json(422, {}) if unknown else as_json(200, {"approvals": [{"number": 1}]})

    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOCKET_API_KEY": "hk_a_b"}
    with scripted_api(without_pages) as api:
        done = run_hocket("--api", api.url, "runs", "approvals", "--run", "r1", "--json", env=env)
    assert json.loads(done.stdout) == [{"number": 1}], done.stderr


STEP = {"type": "python", "node": "n", "state": "succeeded"}
MORE = "There are more steps, or more entries in their journals, than are shown"


@pytest.mark.parametrize(
    ("steps", "more_entries", "said"), [(3, False, 1), (2, False, 0), (2, True, 1)]
)
def test_a_run_of_which_not_all_is_shown_says_so(
    monkeypatch: pytest.MonkeyPatch, steps: int, more_entries: bool, said: int
) -> None:
    """On standard error, so that JSON stays JSON, and in it."""
    monkeypatch.setattr(runs, "STEP_PAGE", 2)
    monkeypatch.setattr(runs, "MAX_STEPS_SHOWN", 2)

    def answered(asked: str, _body: Any) -> Answer:
        url = urlsplit(asked.removeprefix("GET "))
        start = int(parse_qs(url.query).get("after", ["0"])[0])
        some = [STEP | {"step": str(number)} for number in range(steps)][start : start + 2]
        answers: dict[str, Any] = {
            "/v1/runs/r": {"run_id": "r"},
            "/v1/runs/r/steps": {"steps": some, "next": "2" if start + 2 < steps else None},
            "/v1/runs/r/journal": {"entries": [], "truncated": more_entries},
            "/v1/runs/r/cost": {"nodes": []},
        }
        return as_json(200, answers[url.path])

    with scripted_api(answered) as api:
        done = CliRunner().invoke(
            app, ["--api", api.url, "runs", "show", "r", "--json"], env={"HOCKET_API_KEY": "hk_a_b"}
        )
    found = json.loads(done.stdout)
    assert (len(found["steps"]), found["truncated"]) == (2, bool(said))
    assert done.stderr.count(MORE) == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "This tenant has no valid keys; with --all-tenants, an all-tenants key lists all."),
        (("--all",), "This tenant has no keys; with --all-tenants, "),
        (("--all-tenants",), "There are no valid keys. Create one with `hocket keys create`."),
    ],
    ids=["of a tenant", "with revoked ones", "of all tenants"],
)
def test_an_empty_list_of_keys_tells_that_there_may_be_others(
    options: tuple[str, ...], said: str
) -> None:
    """Such as the one in use, which belongs to all tenants."""
    with scripted_api(lambda *_: as_json(200, {"keys": [], "next": None})) as api:
        told = CliRunner().invoke(app, ["--api", api.url, "keys", "list", *options])
    assert said in told.output


@pytest.mark.parametrize("words", [("test", "ops"), ("redeliver", "ops", "msg_1")], ids=" ".join)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_message_for_a_disabled_webhook_is_told_to_wait(
    words: tuple[str, ...], enabled: bool
) -> None:
    answer = {"message_id": "msg_1", "enabled": enabled}
    with scripted_api(lambda *_: as_json(200, answer)) as api:
        told = CliRunner().invoke(app, ["--api", api.url, "webhooks", *words])
    assert told.exit_code == 0
    assert "msg_1" in told.stdout
    assert ("hocket webhooks enable ops" in told.stderr) is not enabled


@pytest.mark.parametrize(
    "description",
    [
        "回答客户的问题然后自己检查自己的答案是否正确。" * 3,
        f"https://docs.example.com/{'x' * 80}",
    ],
    ids=["Chinese", "URL"],
)
def test_a_type_is_listed_with_its_description_whatever_it_is_written_in(
    tmp_path: Path, description: str
) -> None:
    """Of a description without spaces, only `…` was shown."""
    queue = {"queue": "t", "workers": 1, "slots": 2}
    one = {"type": "t", "version": "1", "built_in": False, "is_served": True, "queues": [queue]}

    def answer(_asked: str, _body: Any) -> Answer:
        return as_json(200, {"types": [{**one, "description": f"{description}\n"}], "next": None})

    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "utf-8"}
    with scripted_api(answer) as api:
        done = run_hocket("--api", api.url, "types", env=env)
    assert done.stdout.splitlines()[-1].endswith(f"  {description}"), done.stderr
