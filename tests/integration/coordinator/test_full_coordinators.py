"""Coordinators that have as many runs as they may leave tasks in their stream until runs have ended."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import nats
import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from hocket.schemas import subjects

BOUND_S = 90
MAX_RUNS = 20
NAMES = ("coordinator", "coordinator-2")
ACCEPTED = 'hocket_tasks_total{outcome="accepted"}'
STEP = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"value": 1}}


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {"HOCKET_MAX_RUNS": str(MAX_RUNS), "HOCKET_PARTITIONS": "3"}
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "data", coordinators=2, services=services, env=environment
    ) as running:
        yield running
    await asyncio.to_thread(shutil.rmtree, folder)


async def metric(platform: Platform, name: str, metric: str) -> float:
    url = health_url(platform.data_dir / "run", platform.process(name).pid)
    assert url is not None
    _, body = await get(url, "/metrics")
    found = [line for line in body.decode().splitlines() if line.startswith(f"{metric} ")]
    return float(found[0].split()[1]) if found else -1.0


async def test_tasks_wait_in_their_stream_while_any_coordinator_is_full_and_none_is_lost(
    platform: Platform,
) -> None:
    spec = {"pipeline": "one", "slo_ms": 3_600_000, "nodes": {"a": STEP}}
    await asyncio.to_thread(platform.api().post, "/v1/pipelines", spec)
    await platform.process("worker").stop()
    client = await nats.connect(platform.nats_url)
    database = await asyncpg.connect(platform.database_url)

    async def publish(count: int) -> None:
        for _ in range(count):
            await client.jetstream().publish(subjects.task("default", "one"), b"{}")

    async with asyncio.timeout(BOUND_S):
        await publish(3 * MAX_RUNS)
        for name in NAMES:  # each has heard that one of them is full, and takes nothing more
            while await metric(platform, name, "hocket_intake_paused") != 1:
                await publish(1)
                await asyncio.sleep(0.05)
        taken = -1.0
        while await database.fetchval("SELECT count(*) FROM hocket.run") != taken:
            await asyncio.sleep(0.05)
            taken = sum([max(0.0, await metric(platform, name, ACCEPTED)) for name in NAMES])
    assert taken >= MAX_RUNS
    await publish(MAX_RUNS)
    stored = (await client.jetstream().stream_info(subjects.TASKS)).state
    assert stored.messages >= MAX_RUNS
    assert await database.fetchval("SELECT count(*) FROM hocket.run") == taken

    await platform.process("worker").start()
    async with asyncio.timeout(BOUND_S):
        query = "SELECT count(*) FROM hocket.run WHERE status = 'succeeded'"
        while await database.fetchval(query) < stored.last_seq:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await database.fetchval("SELECT count(*) FROM hocket.run") == stored.last_seq
    await database.close()
    await client.close()
