"""Runs that wait leave the coordinator's memory, survive its death there, and wake for a signal or their
time: on real servers and processes."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from support.places import HANDLERS

BOUND_S = 90
PAUSE_S = 0.05
RUNS = 40
SOON_MS = 14_000
"""Long enough to be parked before, short enough for a test."""


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    services = ("coordinator", "worker", "admin")
    environment = {
        "HOCKET_HANDLERS": "construct_handlers",
        "PYTHONPATH": HANDLERS,
    }
    async with Platform(folder / "data", services=services, env=environment) as running:
        yield running
    shutil.rmtree(folder)


class Rig:
    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._api = platform.api()

    async def apply(self, name: str, **ask: Any) -> None:
        document = {
            "pipeline": name,
            "slo_ms": 3_600_000,
            "nodes": {
                "before": {
                    "type": "python",
                    "handler": "construct_handlers:echo",
                    "with": {"n": 1},
                },
                "ask": {"type": "approval", "needs": ["before"], **ask},
                "after": {
                    "type": "python",
                    "handler": "construct_handlers:echo",
                    "needs": ["ask"],
                    "with": {"by": "{{ nodes.ask.output.by }}"},
                },
            },
        }
        await asyncio.to_thread(self._api.post, "/v1/pipelines", document)

    async def begin(self, name: str, count: int) -> list[str]:
        run_ids = []
        for _ in range(count):
            body = {"pipeline": name, "input": {}}
            receipt = await asyncio.to_thread(self._api.post, "/v1/runs", body)
            run_ids.append(str(receipt["run_id"]))
        return run_ids

    async def approve(self, run_id: str) -> None:
        body = {"name": "ask", "payload": {"approved": True}}
        await asyncio.to_thread(self._api.post, f"/v1/runs/{run_id}/signals", body)

    async def cancel(self, name: str) -> None:
        """Cancel all runs of a pipeline by one request."""
        change = {"action": "cancel", "filter": {"pipeline": name}}
        await asyncio.to_thread(self._api.post, "/v1/bulk/operations", change)

    async def rows(self, run_ids: list[str]) -> dict[str, asyncpg.Record]:
        connection = await asyncpg.connect(self.platform.database_url)
        rows = await connection.fetch(
            "SELECT run_id, status, error, parked_until FROM hocket.run WHERE run_id = ANY($1)",
            run_ids,
        )
        await connection.close()
        return {row["run_id"]: row for row in rows}

    async def in_memory(self) -> int:
        url = health_url(self.platform.data_dir / "run", self.platform.process("coordinator").pid)
        assert url is not None
        _, body = await get(url, "/metrics")
        lines = body.decode().splitlines()
        return int(
            float(next(one for one in lines if one.startswith("hocket_runs_in_flight ")).split()[1])
        )

    async def parked(self, run_ids: list[str]) -> None:
        """Wait until all are parked, and none is in memory."""
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = await self.rows(run_ids)
                parked = sum(1 for row in rows.values() if row["parked_until"] is not None)
                if parked == len(run_ids) and await self.in_memory() == 0:
                    return
                await asyncio.sleep(PAUSE_S)

    async def ended(self, run_ids: list[str]) -> dict[str, asyncpg.Record]:
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = await self.rows(run_ids)
                if len(rows) == len(run_ids) and all(
                    r["status"] != "running" for r in rows.values()
                ):
                    return rows
                await asyncio.sleep(PAUSE_S)


async def test_runs_that_wait_for_a_person_are_parked_and_go_on_when_answered(
    platform: Platform,
) -> None:
    rig = Rig(platform)
    await rig.apply("asking")
    run_ids = await rig.begin("asking", RUNS)
    await rig.parked(run_ids)
    for run_id in run_ids:
        await rig.approve(run_id)
    rows = await rig.ended(run_ids)
    assert {row["status"] for row in rows.values()} == {"succeeded"}
    assert {row["parked_until"] for row in rows.values()} == {None}


async def test_parked_runs_are_not_loaded_by_a_takeover_and_go_on_after_it(
    platform: Platform,
) -> None:
    rig = Rig(platform)
    await rig.apply("asking")
    run_ids = await rig.begin("asking", RUNS)
    await rig.parked(run_ids)
    await platform.kill("coordinator")
    await platform.wait_ready()
    assert await rig.in_memory() == 0
    await rig.approve(run_ids[0])
    rows = await rig.ended(run_ids[:1])
    assert rows[run_ids[0]]["status"] == "succeeded"
    rest = await rig.rows(run_ids[1:])
    assert {row["status"] for row in rest.values()} == {"running"}
    await rig.cancel("asking")
    rows = await rig.ended(run_ids[1:])
    assert {row["status"] for row in rows.values()} == {"cancelled"}
    assert {row["parked_until"] for row in rows.values()} == {None}


async def test_a_parked_run_wakes_when_its_time_has_come_though_its_coordinator_died(
    platform: Platform,
) -> None:
    rig = Rig(platform)
    await rig.apply("impatient", wait_ms=SOON_MS)
    run_ids = await rig.begin("impatient", 5)
    await rig.parked(run_ids)
    await platform.kill("coordinator")
    rows = await rig.ended(run_ids)
    assert {row["status"] for row in rows.values()} == {"failed"}
    assert all("wait_timed_out" in row["error"] for row in rows.values())


async def test_the_same_task_again_is_the_parked_run(platform: Platform) -> None:
    rig = Rig(platform)
    await rig.apply("asking")
    body = {"pipeline": "asking", "input": {}, "idempotency_key": "twice"}
    first = await asyncio.to_thread(rig._api.post, "/v1/runs", body)
    await rig.parked([first["run_id"]])
    second = await asyncio.to_thread(rig._api.post, "/v1/runs", body)
    assert second["run_id"] == first["run_id"]
    await rig.approve(first["run_id"])
    rows = await rig.ended([first["run_id"]])
    assert rows[first["run_id"]]["status"] == "succeeded"
