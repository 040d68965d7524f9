"""`hocket cost` says where it shows only a part."""

import json

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from support.shared.scripted_api import as_json, scripted_api

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
