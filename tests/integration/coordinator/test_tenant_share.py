"""A tenant that fills the coordinators keeps nobody else out; its own tasks are refused, and say so."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import nats
import pytest
import yaml
from nats.aio.client import Client

from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from hocket.schemas import subjects
from support.places import HANDLERS
from support.servers.tasks_left import tasks_left

BOUND_S = 90
MAX_RUNS = 10
SLOTS = 6 * MAX_RUNS
NAMES = ("coordinator", "coordinator-2")
ENDED = "SELECT count(*) FROM hocket.run WHERE tenant = 'b' AND status = 'succeeded'"
RUNNING = "SELECT count(*) FROM hocket.run WHERE tenant = 'a' AND status = 'running'"
REFUSED = "SELECT error FROM hocket.run WHERE tenant = 'a' AND status = 'rejected'"


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"node_types": {"python": {"concurrency": SLOTS}}}))
    environment = {
        "HOCKET_MAX_RUNS": str(MAX_RUNS),
        "HOCKET_PARTITIONS": "3",
        "HOCKET_HANDLERS": "coordinator_handlers",
        "PYTHONPATH": HANDLERS,
        "DISPATCH_JOURNAL": str(folder / "journal"),
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "data",
        coordinators=2,
        services=services,
        worker_types=("python",),
        env=environment,
        config=config,
    ) as running:
        for tenant, ms in (("a", 600_000), ("b", 1)):
            step = {"type": "python", "handler": "coordinator_handlers:nap", "with": {"ms": ms}}
            spec = {"pipeline": "one", "slo_ms": 3_600_000, "nodes": {"n": step}}
            await asyncio.to_thread(running.api(tenant).post, "/v1/pipelines", spec)
        yield running
    await asyncio.to_thread(shutil.rmtree, folder)


async def pauses(platform: Platform, name: str) -> bool:
    url = health_url(platform.data_dir / "run", platform.process(name).pid)
    assert url is not None
    _, body = await get(url, "/metrics")
    return b"\nhocket_intake_paused 1.0\n" in body


async def publish(client: Client, tenant: str, **headers: str) -> None:
    await client.jetstream().publish(subjects.task(tenant, "one"), b"{}", headers=headers)


async def test_one_tenant_fills_the_coordinators_and_the_runs_of_another_end(
    platform: Platform,
) -> None:
    client = await nats.connect(platform.nats_url)
    database = await asyncpg.connect(platform.database_url)
    tasks = client.jetstream()

    published = 0
    async with asyncio.timeout(BOUND_S):
        # alone, it is not refused: its tasks wait in their stream
        for name in NAMES:
            while not await pauses(platform, name):
                await publish(client, "a")
                published += 1
                await asyncio.sleep(0.05)
        inbox = client.new_inbox()
        told = await client.subscribe(inbox)
        await publish(client, "a", **{"Hocket-Reply-To": inbox})
        published += 1
        assert await database.fetch(REFUSED) == []
        assert await tasks_left(tasks) > 0

        # another tenant's tasks come behind them, and their runs end
        others = 0
        hearing = asyncio.create_task(told.next_msg(timeout=BOUND_S))
        while not hearing.done():  # whoever has the task in hand must see that others wait
            await publish(client, "b")
            others += 1
            await asyncio.sleep(0.1)
        while await database.fetchval(ENDED) < others:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        message = await hearing
        error = json.loads(message.data)["error"]
        assert (error["code"], error["retryable"]) == ("tenant_over_share", True)
        assert error["details"]["tenant"] == "a"

        # every task is a run that goes on, a run that was refused, or waits still
        while True:
            refused = [json.loads(row["error"]) for row in await database.fetch(REFUSED)]
            running = await database.fetchval(RUNNING)
            waiting = await tasks_left(tasks)
            if running + len(refused) + waiting == published:
                break
            await asyncio.sleep(0.05)
    assert running >= MAX_RUNS
    assert {one["code"] for one in refused} == {"tenant_over_share"}
    assert (await tasks.stream_info(subjects.DLQ)).state.messages == 0
    await database.close()
    await client.close()
