"""A worker with a gateway in its process: the same runs, doors and books, and what a kill takes."""

import asyncio
import json
import shutil
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import nats
import pytest
import yaml

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from support.places import HANDLERS

RUNS = 8
ENDS_WITHIN_S = 60
PIPELINE = {
    "pipeline": "inline",
    "slo_ms": 120_000,
    "nodes": {
        "ask": {"type": "llm", "model": "probe", "prompt": "?"},
        "again": {"type": "llm", "model": "probe", "prompt": "!", "needs": ["ask"]},
    },
    "output": "{{ nodes.again.output.text }}",
}


@pytest.fixture(scope="module")
def journal() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    path = folder / "calls"
    path.touch()
    yield path
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def platform(journal: Path) -> AsyncIterator[Platform]:
    config = journal.parent / "hocket.yaml"
    models = {"probe": {"backends": [{"function": "fault_handlers:complete"}]}}
    config.write_text(yaml.safe_dump({"models": models, "workers": {"ack_wait_s": 2}}))
    environment = {
        "FAULT_JOURNAL": str(journal),
        "HOCKET_HANDLERS": "fault_handlers,journal_handlers",
        "PYTHONPATH": HANDLERS,
    }
    data = journal.parent / "data"
    running = Platform(data, env=environment, config=config, inline_gateway=True, workers=2)
    async with running:
        api = running.api()
        await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
        yield running


async def publish(platform: Platform, name: str) -> list[str]:
    keys = [f"{name}-{n}" for n in range(RUNS)]
    client = await nats.connect(platform.nats_url)
    for key in keys:
        await client.jetstream().publish(
            subjects.task("default", "inline"), b"{}", headers={"Hocket-Idempotency-Key": key}
        )
    await client.close()
    return [ids.run_id("default", key) for key in keys]


async def ended(platform: Platform, run_ids: list[str]) -> dict[str, str]:
    connection = await asyncpg.connect(platform.database_url)
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                rows = await connection.fetch(
                    "SELECT run_id, status FROM hocket.run"
                    " WHERE run_id = ANY($1) AND finished_at IS NOT NULL",
                    run_ids,
                )
                if len(rows) == len(run_ids):
                    return {row["run_id"]: row["status"] for row in rows}
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def calls_of(
    platform: Platform, journal: Path, run_ids: list[str], least: int
) -> tuple[list[str], list[str]]:
    """Return the calls of runs that the model counted, and those that the ledger has, when it has at
    least so many."""
    connection = await asyncpg.connect(platform.database_url)
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                rows = await connection.fetch(
                    "SELECT call_id FROM hocket.usage WHERE run_id = ANY($1)", run_ids
                )
                if len(rows) >= least:
                    break
                await asyncio.sleep(0.05)
    finally:
        await connection.close()
    lines = await asyncio.to_thread(journal.read_text)
    metered = sorted(call for call in lines.split() if call.split(":")[0] in run_ids)
    return metered, sorted(row["call_id"] for row in rows)


async def test_runs_are_made_and_booked_without_a_gateway_process(
    platform: Platform, journal: Path
) -> None:
    assert set(platform.processes) == {"coordinator", "worker", "worker-2", "ledger", "admin"}
    run_ids = await publish(platform, "plain")
    assert await ended(platform, run_ids) == dict.fromkeys(run_ids, "succeeded")
    metered, booked = await calls_of(platform, journal, run_ids, 2 * RUNS)
    assert len(booked) == 2 * RUNS
    assert booked == metered


def post(url: str, body: object, key: str) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    request.add_header("X-Api-Key", key)
    with urllib.request.urlopen(request, timeout=10) as answer:
        content: bytes = answer.read()
    return content


async def test_others_reach_it_over_http_and_nats(platform: Platform) -> None:
    body = {"model": "probe", "messages": [{"role": "user", "content": "?"}]}
    url = f"{platform.gateway_url}/chat/completions"
    answer = await asyncio.to_thread(post, url, body, platform.api_key)
    assert json.loads(answer)["choices"][0]["message"]["content"] == "done"
    client = await nats.connect(platform.nats_url)
    told = await client.request(subjects.GATEWAY_MODELS, b"", timeout=5)
    assert "probe" in {model["name"] for model in json.loads(told.data)["models"]}
    states = await client.request(subjects.GATEWAY_STATES, b"{}", timeout=5)
    assert {one["breaker"] for one in json.loads(states.data)["replicas"]} == {"closed"}
    await client.close()


async def test_a_worker_that_stops_finishes_its_calls_and_says_so(
    platform: Platform, journal: Path
) -> None:
    run_ids = await publish(platform, "stopped")
    await asyncio.sleep(0.03)
    await platform.process("worker").stop()
    await platform.process("worker").start()
    await platform.wait_ready()
    assert await ended(platform, run_ids) == dict.fromkeys(run_ids, "succeeded")
    metered, booked = await calls_of(platform, journal, run_ids, 2 * RUNS)
    assert booked == metered
    log = await asyncio.to_thread((platform.log_dir / "worker.log").read_text)
    closed, drained = log.rindex("gateway_draining"), log.rindex("worker_drained")
    assert closed < drained < log.rindex("service_stopped")


@pytest.mark.timeout(ENDS_WITHIN_S * 2)
async def test_a_worker_that_is_killed_takes_its_calls_along_and_nothing_else(
    platform: Platform, journal: Path
) -> None:
    run_ids: list[str] = []
    for number in range(3):
        run_ids += await publish(platform, f"killed-{number}")
        await asyncio.sleep(0.04 * number)  # the moment of the fault is the experiment
        await platform.kill("worker")
        await platform.wait_ready()
    assert await ended(platform, run_ids) == dict.fromkeys(run_ids, "succeeded")
    metered, booked = await calls_of(platform, journal, run_ids, 2 * len(run_ids))
    assert len(booked) == len(set(booked))
    # what it was in the middle of nobody answered; the step called again under an id of its own
    assert set(booked) <= set(metered)
