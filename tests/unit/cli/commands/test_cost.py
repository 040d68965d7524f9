"""`hocket cost` says where it shows only a part, and which time it means."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from support.shared.scripted_api import Answer, as_json, scripted_api

ROW = {
    "run_id": "r1", "pipeline": "p", "version": 1, "status": "succeeded", "duration_ms": 1.0, "calls": 1,
    "input_tokens": 1, "output_tokens": 1, "cost_usd": "0.5",
}  # fmt: skip


def cost(*options: str, truncated: bool) -> Result:
    page = {"costs": [ROW, ROW], "truncated": truncated}
    with scripted_api(lambda *_: as_json(200, page)) as api:
        return CliRunner().invoke(
            cli,
            ["--api", api.url, "cost", "--by", "run", *options],
            env={"HOCKET_API_KEY": "hk_a_b"},
        )


@pytest.mark.parametrize("truncated", [False, True])
def test_a_part_of_the_costs_is_not_told_as_all(truncated: bool) -> None:
    shown, printed = cost(truncated=truncated), cost("--json", truncated=truncated)
    total = "total of these rows $1.00" if truncated else "total $1.00"
    assert total in shown.stdout.splitlines()
    assert json.loads(printed.stdout) == [ROW, ROW]
    for said in (shown, printed):
        assert ("more rows" in said.stderr) is truncated


def asked(by: str, *options: str) -> tuple[Result, dict[str, list[str]]]:
    """Return what is printed, and the parameters of the request."""

    def answer(_: str, __: Any) -> Answer:
        name = "savings" if by == "cache" else "costs"
        day = {"day": "2026-11-29", "node": "n", "kind": "call", "runs": 1, "hits": 1}
        row = ROW | day | {"saved_usd": "0.5", "model": "m", "backend": "b", "failed_calls": 0}
        return as_json(200, {name: [row | {"mean_latency_ms": 1.0}], "truncated": False})

    with scripted_api(answer) as api:
        result = CliRunner().invoke(
            cli,
            ["--api", api.url, "cost", "--by", by, *options],
            env={"HOCKET_API_KEY": "hk_a_b", "COLUMNS": "300"},
        )
    assert result.exit_code == 0, result.output
    return result, parse_qs(urlsplit(api.asked[-1][0]).query)


@pytest.mark.parametrize("days", [1, 30])
def test_days_are_the_same_utc_days_whatever_costs_are_grouped_by(days: int) -> None:
    before = datetime.now(UTC).date()
    since = {
        by: asked(by, "--days", str(days))[1]["since" if by == "run" else "from"][0]
        for by in ("pipeline", "kind", "cache", "run")
    }
    midnight = datetime.fromisoformat(since.pop("run"))
    assert (midnight.hour, midnight.minute, midnight.second, midnight.microsecond) == (0, 0, 0, 0)
    assert midnight.utcoffset() == timedelta(0)
    firsts = {midnight.date(), *map(date.fromisoformat, since.values())}
    first = before - timedelta(days=days - 1)
    assert firsts <= {first, first + timedelta(days=1)}, "midnight may pass during the test"


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("pipeline", "Calls and charges since {first} 00:00 UTC, by when they happened."),
        ("run", "Runs accepted since {first} 00:00 UTC, with all their calls."),
        ("node", "Calls and charges of all time."),
        ("cache", "Steps served from the cache since {first} 00:00 UTC."),
    ],
)
def test_the_header_says_which_time_is_meant(by: str, said: str) -> None:
    first = datetime.now(UTC).date()
    shown = asked(by, "--days", "1")[0].stdout
    assert any(said.format(first=day) in shown for day in (first, first + timedelta(days=1)))
    assert ("accepted earlier" in shown) is (by == "run")
    assert "since" not in asked(by, "--json")[0].stdout
