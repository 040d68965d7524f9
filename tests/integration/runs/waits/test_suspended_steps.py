"""Handlers that wait: their steps hold no worker, outlive workers and coordinators, and go on with what
came: on real servers and processes."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.cli.local.platform import Platform
from support.handlers.waiting_handlers import DONE
from support.places import HANDLERS
from support.runs.waiting_runs import WaitingRuns

WAITING = 80
"""Runs that wait at once, of a worker that runs 64 `python` steps."""


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[tuple[Platform, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {
        "HOCKET_HANDLERS": "waiting_handlers",
        "PYTHONPATH": HANDLERS,
        DONE: str(folder / "done"),
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(folder / "data", services=services, env=environment) as platform:
        yield platform, folder / "done"
    shutil.rmtree(folder)


@pytest.fixture
def rig(running: tuple[Platform, Path]) -> WaitingRuns:
    platform, done = running
    done.unlink(missing_ok=True)
    return WaitingRuns(platform, done)


async def test_a_step_says_what_it_waits_for_and_goes_on_with_it(rig: WaitingRuns) -> None:
    run_id = await rig.begin("order")
    step = await rig.waits(run_id)
    assert (step["waits_for"]["signals"], step["attempt"]) == (["paid"], 1)
    assert step["waits_for"]["reason"] == "It waits for the signal `paid`."
    shown = CliRunner().invoke(
        cli,
        ["runs", "show", run_id],
        env={"HOCKET_API_URL": rig.platform.api_url, "HOCKET_API_KEY": rig.platform.api_key},
    )
    assert "waits for the signal `paid`" in " ".join(shown.output.split())
    await rig.signal(run_id, "paid", {"cents": 5})
    run = await rig.ended(run_id)
    assert run["output"] == {"paid": {"cents": 5}, "attempt": 2}
    step = await rig.step(run_id)
    assert step["waits_for"] is None
    assert [(one["attempt"], one["outcome"]) for one in step["attempts"]] == [(1, "suspended")]
    assert rig.done() == ["order600000 charged", "order600000 shipped"]


async def test_a_signal_that_is_there_before_the_handler_waits_is_taken(rig: WaitingRuns) -> None:
    run_id = await rig.begin("order")
    await rig.signal(run_id, "paid", "early")
    assert (await rig.ended(run_id))["output"]["paid"] == "early"
    assert len(rig.done()) == 2


async def test_more_handlers_wait_than_a_worker_has_slots(rig: WaitingRuns) -> None:
    run_ids = [await rig.begin("order") for _ in range(WAITING)]
    for run_id in run_ids:
        await rig.waits(run_id)
    for number, run_id in enumerate(run_ids):
        await rig.signal(run_id, "paid", number)
    outputs = [(await rig.ended(run_id))["output"]["paid"] for run_id in run_ids]
    assert outputs == list(range(WAITING))
    assert len(rig.done()) == 2 * WAITING


async def test_a_wait_ends_at_its_time(rig: WaitingRuns) -> None:
    run_id = await rig.begin("ask", timeout_s=1.0)
    run = await rig.ended(run_id)
    assert (run["status"], run["output"]) == ("succeeded", {"answer": "none"})


async def test_a_long_sleep_holds_no_worker(rig: WaitingRuns) -> None:
    run_id = await rig.begin("nap", seconds=6.0)
    step = await rig.waits(run_id)
    assert step["waits_for"]["until"] is not None
    assert step["waits_for"]["signals"] == []
    assert (await rig.ended(run_id))["output"] == {"attempt": 2}
    assert rig.done() == ["nap600000 lay down"]


async def test_a_run_is_cancelled_while_its_handler_waits(rig: WaitingRuns) -> None:
    run_id = await rig.begin("order")
    await rig.waits(run_id)
    await rig.cancel(run_id)
    assert (await rig.ended(run_id))["status"] == "cancelled"
    assert (await rig.step(run_id))["state"] == "cancelled"


async def test_a_runs_deadline_ends_a_wait_and_its_time_is_told_as_waiting(
    rig: WaitingRuns,
) -> None:
    run_id = await rig.begin("order", slo_ms=4_000)
    run = await rig.ended(run_id)
    assert run["status"] == "expired"
    assert run["critical_path"]["by_kind"]["waiting"] > 0


async def test_a_wait_outlives_its_worker_and_its_coordinator(rig: WaitingRuns) -> None:
    run_ids = [await rig.begin("order") for _ in range(3)]
    for run_id in run_ids:
        await rig.waits(run_id)
    await rig.platform.kill("worker")
    await rig.signal(run_ids[0], "paid", "after the worker")
    assert (await rig.ended(run_ids[0]))["output"]["paid"] == "after the worker"
    await rig.platform.kill("coordinator")
    await rig.signal(run_ids[1], "paid", "while nobody has the run")
    await rig.platform.wait_ready()
    await rig.signal(run_ids[2], "paid", "after the coordinator")
    outputs = [(await rig.ended(run_id))["output"]["paid"] for run_id in run_ids[1:]]
    assert outputs == ["while nobody has the run", "after the coordinator"]
    assert len(rig.done()) == 2 * len(run_ids)


async def test_a_wait_ends_at_its_time_though_its_coordinator_died(rig: WaitingRuns) -> None:
    run_id = await rig.begin("ask", timeout_s=8.0)
    await rig.waits(run_id)
    await rig.platform.kill("coordinator")
    assert (await rig.ended(run_id))["output"] == {"answer": "none"}
