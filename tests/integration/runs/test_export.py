"""Runs exported over REST and by the command: whole, in order, filtered, and no part for the whole."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from hocket.admin.runs import exports
from hocket.admin.runs import reads as run_reads
from hocket.cli.app import app
from support.rest_rig import Rest, bearer, running_rest

RUNS = 1_203
"""More than two pages."""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def insert(rest: Rest, count: int, tenant: str = "default") -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at, labels)"
        " SELECT 'r' || left(md5($2 || n), 24), 0, $2, 'greet', 1,"
        "  CASE WHEN n % 3 = 0 THEN 'failed' ELSE 'succeeded' END, 'standard', '{}',"
        "  now() - n * interval '1 ms', now(), now(), jsonb_build_object('name', 'a,\"b\"')"
        " FROM generate_series(1, $1) AS n",
        count,
        tenant,
    )


async def exported(rest: Rest, query: str = "") -> str:
    async with rest.session.get(f"{rest.url}/v1/runs/export{query}") as reply:
        assert reply.status == 200
        return await reply.text()


async def test_an_export_has_every_run_of_the_list_in_its_order(rest: Rest) -> None:
    await insert(rest, RUNS)
    await insert(rest, 7, tenant="rival")
    lines = (await exported(rest)).splitlines()
    listed = []
    after = ""
    while after is not None:
        page = (await rest.get(f"/v1/runs?limit=500{after}")).body
        listed += page["runs"]
        after = f"&after={page['next']}" if page["next"] else None  # type: ignore[assignment]
    assert [json.loads(line) for line in lines] == listed
    assert len(listed) == RUNS


async def test_csv_has_the_same_runs_with_the_same_names(rest: Rest) -> None:
    await insert(rest, RUNS)
    rows = list(csv.DictReader(io.StringIO(await exported(rest, "?format=csv"))))
    runs = [json.loads(line) for line in (await exported(rest)).splitlines()]
    assert [row["run_id"] for row in rows] == [run["run_id"] for run in runs]
    assert list(rows[0]) == list(runs[0])
    assert json.loads(rows[0]["labels"]) == {"name": 'a,"b"'}
    assert (rows[0]["budget_usd"], rows[0]["met_deadline"]) == ("", "true")


async def test_an_export_takes_the_filters_of_lists_and_a_limit(rest: Rest) -> None:
    await insert(rest, RUNS)
    failed = (await exported(rest, "?status=failed")).splitlines()
    assert len(failed) == RUNS // 3
    assert {json.loads(line)["status"] for line in failed} == {"failed"}
    assert len((await exported(rest, "?limit=501")).splitlines()) == 501
    assert (await exported(rest, "?pipeline=none")) == ""
    assert (await exported(rest, "?pipeline=none&format=csv")).strip() == ",".join(exports.COLUMNS)
    refused = await rest.get("/v1/runs/export?format=xml")
    assert (refused.status, refused.body["field"]) == (422, "format")
    viewer = bearer(await rest.make_key("viewer"))
    denied = await rest.get("/v1/runs/export?contains=x", headers=viewer)
    assert (denied.status, denied.body["code"]) == (403, "permission_missing")


async def test_an_export_that_breaks_off_does_not_pass_for_a_whole_one(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(rest, RUNS)
    real, pages = run_reads.list_runs, 0

    async def breaks(*values: object) -> object:
        nonlocal pages
        pages += 1
        if pages > 1:
            raise OSError("the database has gone")
        return await real(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(run_reads, "list_runs", breaks)
    with pytest.raises(aiohttp.ClientPayloadError):
        await exported(rest)


async def test_the_command_writes_what_rest_answers(rest: Rest, tmp_path: Path) -> None:
    await insert(rest, RUNS)
    key = await rest.make_key("viewer")
    file = tmp_path / "runs.csv"
    done = await asyncio.to_thread(
        CliRunner(env={"HOCKET_API_KEY": key}).invoke,
        app,
        ["--api", rest.url, "runs", "export", "--format", "csv", "--to", str(file)],
    )
    assert done.exit_code == 0, done.output
    assert file.read_bytes().decode() == await exported(rest, "?format=csv")
