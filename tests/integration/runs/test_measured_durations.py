"""Measured durations on the real platform: they enter the log, and a new owner decides with them."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest

from hocket.cli.local.platform import Platform
from hocket.coordinator.core.time.duration_estimates import ENOUGH, TAIL_SD
from hocket.schemas import subjects
from hocket.schemas.messages import OutlookChanged
from support.places import HANDLERS

ECHO = {"type": "python", "handler": "construct_handlers:echo"}
PIPELINE = {
    "pipeline": "measured",
    "slo_ms": 60_000,
    "nodes": {"a": ECHO, "b": ECHO | {"needs": ["a"], "expect": {"mean_ms": 40_000}}},
}
BOUND_S = 20.0


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {
        "HOCKET_HANDLERS": "construct_handlers",
        "PYTHONPATH": HANDLERS,
        "HOCKET_PARTITIONS": "1",
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "d", env=environment, services=services, worker_types=("python",)
    ) as running:
        yield running
    shutil.rmtree(folder)


async def run(platform: Platform) -> dict[str, Any]:
    api = platform.api()
    body = {"pipeline": "measured", "input": {}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(api.post, "/v1/runs", body)
    assert end["status"] == "succeeded"
    return end


async def query(platform: Platform, text: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(platform.database_url, timeout=BOUND_S)
    try:
        return await connection.fetch(text, *arguments)
    finally:
        await connection.close()


async def held(platform: Platform) -> dict[str, tuple[float, float, float]]:
    """Return what Postgres holds of the nodes."""
    rows = await query(platform, "SELECT * FROM hocket.outlook")
    return {r["path"]: (r["weight"], r["mean_ms"], r["variance"]) for r in rows}


async def told(platform: Platform) -> dict[str, tuple[float, float, float]]:
    """Return what the log says of the nodes."""
    client = await nats.connect(platform.nats_url)
    jetstream = client.jetstream()
    info = await jetstream.stream_info(subjects.LOG)
    found = {}
    for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1):
        message = await jetstream.get_msg(subjects.LOG, seq)
        if message.subject == subjects.log(0, OutlookChanged.kind):
            for node in json.loads(message.data or b"")["nodes"]:
                found[node["path"]] = (node["weight"], node["mean_ms"], node["variance"])
    await client.close()
    return found


async def test_what_was_measured_enters_the_log_and_a_new_owner_decides_with_it(
    platform: Platform,
) -> None:
    api = platform.api()
    await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
    await run(platform)
    async with asyncio.timeout(BOUND_S):
        kept: dict[str, asyncpg.Record] = {}
        while len(kept) < 2 or kept["b"]["weight"] < ENOUGH:
            await run(platform)
            kept = {r["path"]: r for r in await query(platform, "SELECT * FROM hocket.outlook")}
            await asyncio.sleep(0.05)  # the outside world gives no signal
    await platform.kill("coordinator")
    await platform.wait_ready()
    async with asyncio.timeout(BOUND_S):
        while await held(platform) != await told(platform):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # what was logged last is yet to be committed
    kept = {r["path"]: r for r in await query(platform, "SELECT * FROM hocket.outlook")}
    end = await run(platform)
    (step,) = await query(
        platform,
        "SELECT extract(epoch FROM r.deadline_at - s.deadline_at)::float8 * 1000 AS kept_free_ms"
        " FROM hocket.step s JOIN hocket.run r USING (run_id) WHERE s.run_id = $1 AND key = 'a'",
        end["run_id"],
    )
    tail_ms = kept["b"]["mean_ms"] + TAIL_SD * kept["b"]["variance"] ** 0.5
    assert step["kept_free_ms"] == pytest.approx(tail_ms, abs=0.01)
    assert step["kept_free_ms"] < 1_000  # measured, no longer the 40 s that the spec expected
