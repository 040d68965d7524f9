"""Where runs stand at limits by key, as REST, the command line and the console show it."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from support.rest_rig import Rest, running_rest
from support.runs.rows import insert_run

PLACE = """
INSERT INTO hocket.flow_place (run_id, gate, tenant, pipeline, kind, key, rule, accepted_at, since,
    is_last, state)
SELECT $1, 0, $2, $3, 'concurrency', $4, '{"limit": 1}', now() + make_interval(secs => $5), now(), true,
       $6
"""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def stand(
    rest: Rest, run_id: str, key: str, at: int, state: str, *, tenant: str = "default"
) -> None:
    await rest.pool.execute(PLACE, run_id, tenant, "p", key, float(at), state)


@pytest.fixture
async def placed(rest: Rest) -> Rest:
    """Two runs wait behind one that holds acme's place; another customer's runs alone, another tenant's
    is nobody's business."""
    await stand(rest, "r-second", "acme", 2, "waiting")
    await stand(rest, "r-holds", "acme", 0, "passed")
    await stand(rest, "r-first", "acme", 1, "waiting")
    await stand(rest, "r-alone", "globex", 3, "passed")
    await stand(rest, "r-theirs", "acme", 0, "waiting", tenant="rival")
    return rest


async def test_a_limit_is_shown_with_its_holders_and_those_that_wait(placed: Rest) -> None:
    found = (await placed.get("/v1/flow")).body["queues"]
    assert [(one["key"], one["held"], one["waiting"], one["rule"]) for one in found] == [
        ("acme", 1, 2, {"limit": 1}),
        ("globex", 1, 0, {"limit": 1}),
    ]
    runs = (await placed.get("/v1/flow/runs", params={"queue": found[0]["queue"]})).body["runs"]
    assert [(one["run_id"], one["state"], one["position"]) for one in runs] == [
        ("r-holds", "held", None),
        ("r-first", "waiting", 1),
        ("r-second", "waiting", 2),
    ]


async def test_a_run_s_position_is_that_among_all_that_wait(placed: Rest) -> None:
    (found,) = (await placed.get("/v1/flow/runs", params={"run": "r-second"})).body["runs"]
    assert (found["position"], found["kind"], found["key"]) == (2, "concurrency", "acme")
    assert (await placed.get("/v1/flow/runs", params={"run": "r-theirs"})).body["runs"] == []


async def test_keys_are_withheld_from_who_may_not_see_inputs(placed: Rest) -> None:
    headers = {"Authorization": f"Bearer {await placed.make_key('viewer')}"}
    answer = await placed.get("/v1/flow", headers=headers)
    assert [one["key"] for one in answer.body["queues"]] == [None, None]
    runs = await placed.get("/v1/flow/runs", headers=headers)
    assert "acme" not in json.dumps([answer.body, runs.body])
    guessed = hashlib.sha256(b"default p concurrency acme").hexdigest()[:24]
    assert guessed not in json.dumps([answer.body, runs.body]), "an id confirms no guess"


async def test_lists_are_paged(placed: Rest) -> None:
    first = (await placed.get("/v1/flow", params={"limit": "1"})).body
    rest = (await placed.get("/v1/flow", params={"limit": "1", "after": first["next"]})).body
    assert [one["key"] for one in (*first["queues"], *rest["queues"])] == ["acme", "globex"]
    assert rest["next"] is None
    assert (await placed.get("/v1/flow", params={"after": "x"})).status == 422
    assert (await placed.get("/v1/flow/runs", params={"queue": "x"})).status == 422


async def test_a_limit_leads_to_its_runs_in_the_console(placed: Rest) -> None:
    headers = {"Accept": "text/html"}
    page = (await placed.get("/console/flow", headers=headers)).body
    (acme, _) = re.findall(r'<a href="([^"]*queue[^"]*)">concurrency</a>', page)
    runs = await placed.get(acme, headers=headers)

    assert runs.status == 200
    assert runs.body.index("r-holds") < runs.body.index("r-first") < runs.body.index("r-second")
    assert "r-alone" not in runs.body


async def test_the_command_line_shows_the_same(placed: Rest) -> None:
    environment = {"HOCKET_API_URL": placed.url, "HOCKET_API_KEY": placed.key, "COLUMNS": "200"}

    async def said(*arguments: str) -> Any:
        invoke = CliRunner().invoke
        result = await asyncio.to_thread(invoke, cli, ["flow", *arguments], env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    queues = json.loads(await said("list", "--json"))
    assert queues == (await placed.get("/v1/flow")).body["queues"]
    assert "acme" in await said("list", "--pipeline", "p")
    shown = await said("runs", "--queue", queues[0]["queue"])
    assert shown.index("r-holds") < shown.index("r-first") < shown.index("r-second")
    assert json.loads(await said("runs", "--run", "nobody", "--json")) == []


async def test_a_run_that_is_held_back_says_where_on_its_page_and_at_the_command_line(
    placed: Rest,
) -> None:
    waits, holds = "r" + "2" * 24, "r" + "1" * 24
    now = datetime.now(UTC)
    for run_id, at, state in ((holds, 5, "passed"), (waits, 6, "waiting")):
        await insert_run(placed.pool, run_id, now, pipeline="p", status="running")
        await stand(placed, run_id, "acme", at, state)
    viewer = {"Authorization": f"Bearer {await placed.make_key('viewer')}"}
    environment = {"HOCKET_API_URL": placed.url, "HOCKET_API_KEY": placed.key, "COLUMNS": "200"}

    async def page(run_id: str, **headers: str) -> str:
        asked = await placed.get(
            f"/console/runs/{run_id}", headers={"Accept": "text/html", **headers}
        )
        return re.sub(r"<[^>]+>", "", str(asked.body))

    async def said(*arguments: str) -> str:
        command = ["runs", "show", *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, cli, command, env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "Waits for concurrency, key acme, position 3, since" in await page(waits)
    withheld = await page(waits, **viewer)
    assert "Waits for concurrency, position 3, since" in withheld
    assert "acme" not in withheld
    assert "Waits for" not in await page(holds)
    assert "waits for concurrency, key acme, position 3, since" in await said(waits)
    assert "waits for" not in await said(holds)
    (place,) = json.loads(await said(waits, "--json"))["flow"]
    assert (place["kind"], place["position"]) == ("concurrency", 3)
    await placed.pool.execute(
        "UPDATE hocket.run SET finished_at = now(), status = 'cancelled' WHERE run_id = $1", waits
    )
    assert "Waits for" not in await page(waits)
