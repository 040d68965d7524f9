"""Calls of the HTTP door that name a run spend from its budget, and the coordinator knows: sub-runs and
steps get what is left, over a killed coordinator, and the end of the run says what all of it cost."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
import yaml

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import RunCharged, RunFinished, encoded
from support.places import HANDLERS

BOUND_S = 60
PRICE = Decimal("0.3")
"""What a call costs."""
MODELS = {
    "probe": {
        "backends": [
            {"function": "charge_handlers:complete", "prices": {"request_usd": float(PRICE)}}
        ]
    }
}
LLM = {"type": "llm", "model": "probe", "prompt": "?"}


def asks(calls: int, **fields: Any) -> dict[str, Any]:
    given = {"model": "probe", "calls": calls, "url": "{{ input.url }}", "run_id": "{{ run.id }}"}
    return {"type": "python", "handler": "charge_handlers:ask", "with": given, **fields}


CHILD = {"pipeline": "child", "slo_ms": 120_000, "nodes": {"own": LLM, "outside": asks(1)}}
PARENT = {
    "pipeline": "parent",
    "slo_ms": 120_000,
    "budget_usd": 5,
    "nodes": {
        "outside": asks(2),
        "go": {"type": "signal", "signal": "go", "needs": ["outside"]},
        "below": {
            "type": "pipeline",
            "pipeline": "child",
            "with": {"url": "{{ input.url }}"},
            "needs": ["go"],
        },
        "last": {**LLM, "needs": ["below"]},
    },
}
POOR = {
    "pipeline": "poor",
    "slo_ms": 120_000,
    "budget_usd": 0.6,
    "nodes": {
        "outside": asks(2),
        "go": {"type": "signal", "signal": "go", "needs": ["outside"]},
        "free": {"type": "python", "handler": "hocket.workers.builtin:echo", "needs": ["go"]},
    },
}
STOPPED = {
    "pipeline": "stopped",
    "slo_ms": 120_000,
    "nodes": {
        "dear": {
            "type": "python",
            "handler": "charge_handlers:charge_and_wait",
            "with": {"usd": "0.02", "path": "{{ input.path }}"},
        }
    },
}
ABOVE = {
    "pipeline": "above",
    "slo_ms": 120_000,
    "nodes": {
        "below": {"type": "pipeline", "pipeline": "stopped", "with": {"path": "{{ input.path }}"}}
    },
}
QUICK = {"pipeline": "quick", "slo_ms": 120_000, "budget_usd": 0.3, "nodes": {"outside": asks(4)}}
QUICK_RUNS = 60


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


@asynccontextmanager
async def running_platform(folder: Path, **options: Any) -> AsyncIterator[Platform]:
    await asyncio.to_thread(folder.mkdir)
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": MODELS, "access": {"open": True}}))
    environment = {"HOCKET_HANDLERS": "charge_handlers", "PYTHONPATH": HANDLERS}
    running = Platform(folder / "data", env=environment, config=config, **options)
    async with running:
        api = running.api()
        for spec in (CHILD, PARENT, POOR, QUICK, STOPPED, ABOVE):
            await asyncio.to_thread(api.post, "/v1/pipelines", spec)
        yield running


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    async with running_platform(folder / "own") as running:
        yield running


async def begin(platform: Platform, pipeline: str, key: str) -> str:
    """Begin a run and return its id."""
    client = await nats.connect(platform.nats_url)
    await client.jetstream().publish(
        subjects.task("default", pipeline),
        json.dumps({"url": platform.gateway_url}).encode(),
        headers={"Hocket-Idempotency-Key": key},
    )
    await client.close()
    return ids.run_id("default", key)


async def row(platform: Platform, query: str, *values: Any) -> asyncpg.Record:
    """Return the row of a query as soon as there is one."""
    connection = await asyncpg.connect(platform.database_url)
    try:
        async with asyncio.timeout(BOUND_S):
            while (found := await connection.fetchrow(query, *values)) is None:  # noqa: ASYNC110 (a row)
                await asyncio.sleep(0.05)
            return found
    finally:
        await connection.close()


async def waits(platform: Platform, run_id: str) -> None:
    """Return when a run waits for its signal."""
    query = "SELECT FROM hocket.step WHERE run_id = $1 AND key = 'go' AND state = 'waiting'"
    await row(platform, query, run_id)


async def goes_on(platform: Platform, run_id: str) -> None:
    signal = {"name": "go", "payload": {}}
    path = f"/v1/runs/{run_id}/signals"
    await asyncio.to_thread(platform.api().post, path, signal)


async def end(platform: Platform, run_id: str) -> RunFinished:
    """Return what EVENTS has of a run's end."""
    query = "SELECT pipeline FROM hocket.run WHERE run_id = $1 AND finished_at IS NOT NULL"
    pipeline = (await row(platform, query, run_id))["pipeline"]
    client = await nats.connect(platform.nats_url)
    try:
        subject = subjects.event("default", pipeline, RunFinished.kind)
        heard = await client.jetstream().subscribe(subject, ordered_consumer=True)
        async with asyncio.timeout(BOUND_S):
            while True:
                told = RunFinished.model_validate_json((await heard.next_msg(BOUND_S)).data)
                if told.run_id == run_id:
                    return told
    finally:
        await client.close()


async def test_sub_runs_and_ends_know_what_was_called_beside_steps_over_a_killed_coordinator(
    platform: Platform,
) -> None:
    run_id = await begin(platform, "parent", "one")
    await waits(platform, run_id)
    await platform.kill("coordinator")
    await platform.wait_ready()
    await goes_on(platform, run_id)

    told = await end(platform, run_id)
    query = "SELECT run_id, budget_usd FROM hocket.run WHERE parent ->> 'run_id' = $1"
    child = await row(platform, query, run_id)
    assert told.status == "succeeded", told.error
    assert child["budget_usd"] == 5 - 2 * PRICE
    assert (await end(platform, child["run_id"])).cost_usd == 2 * PRICE
    assert told.cost_usd == 5 * PRICE
    booked = "SELECT FROM hocket.usage WHERE tenant = 'default' HAVING sum(cost_usd) = $1"
    await row(platform, booked, 5 * PRICE)
    seen = await asyncio.to_thread(platform.api().get, f"/v1/runs/{run_id}")
    assert Decimal(seen["spent_usd"]) == 5 * PRICE


async def test_no_step_begins_in_a_run_whose_budget_was_called_away(platform: Platform) -> None:
    run_id = await begin(platform, "poor", "two")
    await waits(platform, run_id)
    await goes_on(platform, run_id)
    told = await end(platform, run_id)
    assert told.error is not None
    assert told.error.code == "budget_exhausted"
    assert "spent 0.6 USD" in told.error.message


async def test_what_a_handler_had_charged_when_its_run_was_cancelled_counts_in_all_runs_above(
    platform: Platform, tmp_path: Path
) -> None:
    charged = tmp_path / "charged"
    api = platform.api()
    task = {"pipeline": "above", "input": {"path": str(charged)}}
    run = await asyncio.to_thread(api.post, "/v1/runs", task)
    run_id = run["run_id"]
    async with asyncio.timeout(BOUND_S):
        while not charged.exists():  # noqa: ASYNC110 (a file of another process)
            await asyncio.sleep(0.05)
    await asyncio.to_thread(api.post, f"/v1/runs/{run_id}/cancel", {})
    spent = """SELECT run_id, finished_at FROM hocket.run
               WHERE (run_id = $1 OR parent ->> 'run_id' = $1) AND spent_usd = 0.02 AND pipeline = $2"""
    child = await row(platform, spent, run_id, "stopped")
    step = "SELECT facts, state FROM hocket.step WHERE run_id = $1 AND key = 'dear'"
    found = await row(platform, step, child["run_id"])
    facts = json.loads(found["facts"])
    assert (found["state"], facts["charged_usd"]) == ("cancelled", "0.02")
    assert (await row(platform, spent, run_id, "above"))["finished_at"] is not None
    seen = await asyncio.to_thread(api.get, f"/v1/runs/{run_id}")
    assert (seen["status"], Decimal(seen["spent_usd"])) == ("cancelled", Decimal("0.02"))
    attempts = "SELECT count(*) FROM hocket.attempt WHERE run_id = $1 AND outcome = 'late'"
    assert (await row(platform, attempts, run_id))["count"] == 0


@pytest.mark.parametrize("seal", [None, "0" * 32, "guessed", "capability of an attempt"])
async def test_a_forged_charge_takes_nothing_from_a_run(
    platform: Platform, seal: str | None
) -> None:
    run_id = await begin(platform, "parent", f"forged-{seal}")
    await waits(platform, run_id)
    event = RunCharged(run_id=run_id, tenant="default", source="mine", total_usd=Decimal(5))
    guessed = Capabilities([b"what-a-forger-takes-for-the-key!"])
    seals = {
        "guessed": guessed.seal(event.kind, encoded(event)),
        "capability of an attempt": guessed.of_attempt("default", run_id, "outside", 1, 0.0),
    }
    headers = None if seal is None else {SEAL: seals.get(seal, seal)}
    client = await nats.connect(platform.nats_url)
    posted = subjects.log(await partition_of(platform, run_id), event.kind)
    await client.jetstream().publish(posted, encoded(event), headers=headers)
    await client.close()
    await goes_on(platform, run_id)  # which stands behind the forged event in the log
    told = await end(platform, run_id)
    assert (told.status, told.cost_usd) == ("succeeded", 5 * PRICE)


async def partition_of(platform: Platform, run_id: str) -> int:
    query = "SELECT partition FROM hocket.run WHERE run_id = $1"
    return int((await row(platform, query, run_id))["partition"])


async def test_a_first_step_that_calls_before_postgres_has_its_run_has_its_budget(
    platform: Platform,
) -> None:
    names = [f"quick-{number}" for number in range(QUICK_RUNS)]
    run_ids = await asyncio.gather(*(begin(platform, "quick", name) for name in names))
    ends = await asyncio.gather(*(end(platform, run_id) for run_id in run_ids))
    assert {one.cost_usd for one in ends} == {PRICE}
    assert {one.status for one in ends} == {"failed"}  # the door refused the second call


async def test_a_gateway_in_a_worker_charges_runs_too(folder: Path) -> None:
    async with running_platform(folder / "inline", inline_gateway=True) as platform:
        run_id = await begin(platform, "poor", "inline")
        await waits(platform, run_id)
        await goes_on(platform, run_id)
        told = await end(platform, run_id)
        assert told.error is not None
        assert told.error.code == "budget_exhausted"
