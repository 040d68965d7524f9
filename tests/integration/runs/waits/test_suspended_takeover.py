"""Handlers that wait while another coordinator takes their runs over: on real servers and processes.

The dead coordinator stays away, or comes back when the runs have ended: no step is done twice.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.local.platform import Platform
from hocket.schemas import ids
from support.handlers.waiting_handlers import DONE
from support.places import HANDLERS
from support.runs.waiting_runs import BOUND_S, PAUSE_S, WaitingRuns

PARTITIONS = 4
VICTIM, OTHER = "coordinator-2", "coordinator"
RUNS = 4
"""Runs of each kind that the victim has."""


@pytest.fixture
async def rig() -> AsyncIterator[WaitingRuns]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {
        "HOCKET_HANDLERS": "waiting_handlers",
        "PYTHONPATH": HANDLERS,
        "HOCKET_PARTITIONS": str(PARTITIONS),
        DONE: str(folder / "done"),
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        folder / "data", coordinators=2, services=services, env=environment
    ) as platform:
        rig = WaitingRuns(platform, folder / "done")
        await owned(platform, is_balanced)
        yield rig
    shutil.rmtree(folder)


Owners = dict[int, str]


def is_balanced(owners: Owners) -> bool:
    return Counter(owners.values()) == {VICTIM: PARTITIONS // 2, OTHER: PARTITIONS // 2}


def is_taken_over(owners: Owners) -> bool:
    return Counter(owners.values()) == {OTHER: PARTITIONS}


async def owned(platform: Platform, holds: Callable[[Owners], bool]) -> Owners:
    """Wait until the partitions are owned so."""
    connection = await asyncpg.connect(platform.database_url)
    async with asyncio.timeout(BOUND_S):
        while True:
            rows = await connection.fetch("SELECT partition, owner FROM hocket.partition")
            if holds(found := {row["partition"]: row["owner"] for row in rows}):
                break
            await asyncio.sleep(PAUSE_S)
    await connection.close()
    return found


async def waiting(rig: WaitingRuns, handler: str, **given: Any) -> list[str]:
    """Return runs of the victim that wait."""
    owners = await owned(rig.platform, is_balanced)
    found: list[str] = []
    while len(found) < RUNS:
        run_id = await rig.begin(handler, **given)
        if owners[ids.partition_of(run_id, PARTITIONS)] == VICTIM:
            found.append(run_id)
    for run_id in found:
        await rig.waits(run_id)
    return found


async def went_on_once(rig: WaitingRuns, run_id: str, paid: str) -> None:
    """Check that a run ended well as its second attempt, with what came."""
    run = await rig.ended(run_id)
    assert (run["error"], run["output"]) == (None, {"paid": paid, "attempt": 2})
    attempts = (await rig.step(run_id))["attempts"]
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [(1, "suspended")]


@pytest.mark.timeout(3 * BOUND_S)
async def test_waits_go_on_with_the_coordinator_that_takes_them_over(rig: WaitingRuns) -> None:
    orders = await waiting(rig, "order")
    asked = await waiting(rig, "ask", timeout_s=15.0)
    await rig.platform.process(VICTIM).kill(restart=False)
    early, late = orders[: RUNS // 2], orders[RUNS // 2 :]
    for run_id in early:
        await rig.signal(run_id, "paid", "while nobody has the run")
    await owned(rig.platform, is_taken_over)
    for run_id in early:
        await went_on_once(rig, run_id, "while nobody has the run")
    for run_id in late:
        assert (await rig.waits(run_id))["waits_for"]["signals"] == ["paid"]
        await rig.signal(run_id, "paid", "after the takeover")
        await went_on_once(rig, run_id, "after the takeover")
    for run_id in asked:
        assert (await rig.ended(run_id))["output"] == {"answer": "none"}
    assert Counter(rig.done())["order600000 shipped"] == RUNS


@pytest.mark.timeout(3 * BOUND_S)
async def test_a_coordinator_that_stood_still_resumes_no_handler_again(rig: WaitingRuns) -> None:
    orders = await waiting(rig, "order")
    pid = rig.platform.process(VICTIM).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for run_id in orders:
            await rig.signal(run_id, "paid", "to the other")
        await owned(rig.platform, is_taken_over)
        for run_id in orders:
            await went_on_once(rig, run_id, "to the other")
    finally:
        os.kill(pid, signal.SIGCONT)
    await owned(rig.platform, is_balanced)
    assert rig.platform.process(VICTIM).pid == pid, "it went on"
    for run_id in orders:
        await went_on_once(rig, run_id, "to the other")
    assert Counter(rig.done())["order600000 shipped"] == RUNS
