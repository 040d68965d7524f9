"""More work than two slots can do, on the real platform: tasks wait, or are refused with a reason."""

import asyncio
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
import yaml
from nats.aio.client import Client

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from support.places import HANDLERS
from support.servers.tasks_left import all_tasks_done
from support.worker_rig import eventually

SLOTS = 2
NAP_MS = 200
NAP = {
    "type": "python",
    "handler": "coordinator_handlers:nap",
    "with": {"ms": NAP_MS},
    "expect": {"mean_ms": NAP_MS},
}
LONG_MS = 600_000.0
FIRST = 30
"""Runs before the tests, so that something is known of the steps."""
BOUND_S = 60.0


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"node_types": {"python": {"concurrency": SLOTS}}}))
    environment = {
        "HOCKET_HANDLERS": "coordinator_handlers",
        "PYTHONPATH": HANDLERS,
        "DISPATCH_JOURNAL": str(folder / "journal"),
        "HOCKET_PARTITIONS": "2",
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "d", env=environment, services=services, worker_types=("python",), config=config
    ) as running:
        api = running.api()
        for name, priority in (("quick", "interactive"), ("steady", "standard")):
            document = {"pipeline": name, "class": priority, "nodes": {"n": NAP}, "slo_ms": LONG_MS}
            await asyncio.to_thread(api.post, "/v1/pipelines", document)
        client = await nats.connect(running.nats_url)
        await ended(running, await burst(client, "quick", "first", FIRST, LONG_MS))
        await client.close()
        yield running
    shutil.rmtree(folder)


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[Client]:
    client = await nats.connect(platform.nats_url)
    yield client
    await client.close()


async def query(platform: Platform, text: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(platform.database_url, timeout=BOUND_S)
    try:
        return list(await connection.fetch(text, *arguments))
    finally:
        await connection.close()


async def publish(client: Client, pipeline: str, key: str, **headers: Any) -> None:
    given = {f"Hocket-{name.replace('_', '-').title()}": str(v) for name, v in headers.items()}
    await client.jetstream().publish(
        subjects.task("default", pipeline), b"{}", headers={"Hocket-Idempotency-Key": key} | given
    )


async def burst(
    client: Client, pipeline: str, name: str, count: int, deadline_ms: float, **more: Any
) -> list[str]:
    """Publish tasks at once; return the ids of their runs."""
    keys = [f"{name}-{i}" for i in range(count)]
    await asyncio.gather(
        *(publish(client, pipeline, key, deadline_ms=deadline_ms, **more) for key in keys)
    )
    return [ids.run_id("default", key) for key in keys]


async def ended(platform: Platform, run_ids: list[str]) -> dict[str, asyncpg.Record]:
    text = "SELECT * FROM hocket.run WHERE run_id = ANY($1) AND finished_at IS NOT NULL"
    async with asyncio.timeout(BOUND_S):
        while len(rows := await query(platform, text, run_ids)) < len(run_ids):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return {row["run_id"]: row for row in rows}


def post(platform: Platform, body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
    request = urllib.request.Request(
        f"{platform.api_url}/v1/runs",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Api-Key": platform.api_key},
    )
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return answer.status, _lower(answer.headers), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, _lower(error.headers), json.loads(error.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def by_status(rows: dict[str, asyncpg.Record]) -> Counter[str]:
    return Counter(row["status"] for row in rows.values())


async def test_tasks_are_begun_while_nothing_is_known_of_what_they_take(
    platform: Platform,
) -> None:
    run_ids = [ids.run_id("default", f"first-{i}") for i in range(FIRST)]
    assert by_status(await ended(platform, run_ids)) == {"succeeded": FIRST}


async def test_interactive_tasks_that_cannot_make_it_are_refused_at_once_and_others_make_it(
    platform: Platform, client: Client
) -> None:
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    capacity = 3_000 * SLOTS // NAP_MS
    run_ids = await burst(client, "quick", "flood", 2 * capacity, 3_000, reply_to=inbox)
    said = [json.loads((await answers.next_msg(timeout=BOUND_S)).data) for _ in range(len(run_ids))]
    errors = [body["error"] for body in said if body["status"] == "rejected"]
    assert {error["code"] for error in errors} == {"deadline_unreachable"}
    for details in (error["details"] for error in errors):
        assert details["limited_by"] == "python"
        assert details["deadline_ms"] <= 3_000 < details["predicted_ms"]
        assert 0 < details["retry_after_ms"] <= details["wait_ms"]

    rows = await ended(platform, run_ids)
    counts = by_status(rows)
    assert counts["rejected"] == len(errors)
    assert capacity / 2 <= counts["rejected"] <= 1.5 * capacity
    # those at the edge may just miss it: what a step costs beside its own time is not predicted
    assert counts["succeeded"] >= 0.75 * (len(run_ids) - counts["rejected"])
    refused = [row for row in rows.values() if row["status"] == "rejected"]
    steps = "SELECT count(*) FROM hocket.step WHERE run_id = ANY($1)"
    assert (await query(platform, steps, [row["run_id"] for row in refused]))[0][0] == 0

    # a key that was refused is free for a new task; it is no dead letter
    key = refused[0]["idempotency_key"]
    await publish(client, "quick", key, deadline_ms=LONG_MS)
    text = "SELECT 1 FROM hocket.run WHERE idempotency_key = $1 AND status = 'succeeded'"

    async def succeeded() -> bool:
        return len(await query(platform, text, key)) == 1

    await eventually(succeeded)
    info = await client.jetstream().stream_info(subjects.DLQ)
    assert info.state.messages == 0


async def test_rest_says_when_to_try_again_and_shows_what_was_rejected(
    platform: Platform, client: Client
) -> None:
    capacity = 2_000 * SLOTS // NAP_MS
    run_ids = await burst(client, "quick", "wave", 2 * capacity, 2_000)
    body = {"pipeline": "quick", "deadline_ms": 2_000, "wait_ms": 30_000}
    tries = [
        asyncio.to_thread(post, platform, body | {"idempotency_key": f"rest-{i}"})
        for i in range(15)
    ]
    answers = await asyncio.gather(*tries)
    refused = [i for i, (status, _, _) in enumerate(answers) if status == 429]
    assert refused
    _, headers, answer = answers[refused[0]]
    assert answer["error"]["code"] == "deadline_unreachable"
    assert int(headers["retry-after"]) >= 1
    run_id = ids.run_id("default", f"rest-{refused[0]}")
    api = platform.api()
    shown = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}")
    assert (shown["status"], shown["error"]["code"]) == ("rejected", "deadline_unreachable")
    await ended(platform, run_ids)
    # the same request again, now that there is room
    body |= {"idempotency_key": f"rest-{refused[0]}", "deadline_ms": LONG_MS}
    status, _, answer = await asyncio.to_thread(post, platform, body)
    assert (status, answer["status"], answer["run_id"]) == (200, "succeeded", run_id)


async def test_standard_tasks_wait_in_the_stream_until_they_can_make_it(
    platform: Platform, client: Client
) -> None:
    run_ids = await burst(client, "steady", "steady", 40, 3_000)

    async def some_wait() -> bool:
        info = await client.jetstream().consumer_info(subjects.TASKS, "intake")
        return bool(info.num_ack_pending)

    await eventually(some_wait)
    rows = await ended(platform, run_ids)
    counts = by_status(rows)
    # three seconds hold the work of thirty
    assert counts["succeeded"] >= 15
    assert counts["rejected"] >= 5
    last_told = max(row["finished_at"] for row in rows.values() if row["status"] == "rejected")
    first_begun = min(row["accepted_at"] for row in rows.values())
    assert (last_told - first_begun).total_seconds() > 1  # they waited for their chance
    await all_tasks_done(client.jetstream())
