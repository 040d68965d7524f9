"""Handlers that call nodes and pipelines: each call is a step that is done once, whoever dies, and a
handler that waits for it holds no slot: on real servers and processes."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.cli.local.platform import Platform
from support.handlers.waiting_handlers import DONE
from support.places import HANDLERS
from support.runs.waiting_runs import BOUND_S, PAUSE_S, WaitingRuns

CALLING = 80
"""Runs whose handlers call a node of the same worker at once; it runs 64 `python` steps."""
STORE = {"store": {"type": "python", "handler": "waiting_handlers:store"}}


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


async def under_way(rig: WaitingRuns, run_id: str, step: str) -> None:
    """Wait until a worker was handed a step of a run."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = (await rig.steps(run_id)).get(step)
            if found is not None and found["state"] == "dispatched":
                return
            await asyncio.sleep(PAUSE_S)


async def test_calls_are_steps_of_the_run_and_their_outputs_go_to_the_handler(
    rig: WaitingRuns,
) -> None:
    run = await rig.ended(run_id := await rig.begin("buy", calls=STORE))
    assert run["output"]["stored"] == {"item": "buy600000"}
    assert run["output"]["parts"] == [{"item": 0}, {"item": 1}, {"item": 2}]
    steps = await rig.steps(run_id)
    assert sorted(steps) == ["a", "a/store-1", "a/store-2", "a/store-3", "a/store-4"]
    assert {(one["parent"], one["node"]) for name, one in steps.items() if name != "a"} == {
        ("a", "a/store")
    }
    assert sorted(rig.done()) == [
        "0 stored", "1 stored", "2 stored",
        "buy600000 charged", "buy600000 shipped", "buy600000 stored",
    ]  # fmt: skip
    shown = CliRunner().invoke(
        cli,
        ["runs", "show", run_id],
        env={"HOCKET_API_URL": rig.platform.api_url, "HOCKET_API_KEY": rig.platform.api_key},
    )
    assert "store-1" in shown.output


async def test_handlers_that_wait_for_their_calls_hold_no_slot(rig: WaitingRuns) -> None:
    run_ids = [await rig.begin("buy", calls=STORE) for _ in range(CALLING)]
    statuses = [(await rig.ended(run_id))["status"] for run_id in run_ids]
    assert Counter(statuses) == {"succeeded": CALLING}
    assert len(rig.done()) == 6 * CALLING


async def test_a_step_says_for_which_call_it_waits_and_its_deadline_ends_both(
    rig: WaitingRuns,
) -> None:
    run_id = await rig.begin("buy", slo_ms=6_000, calls=STORE, wait_s=60)
    step = await rig.waits(run_id)
    assert step["waits_for"]["steps"] == ["a/store-1"]
    assert step["waits_for"]["reason"] == "It waits for what its handler called: a/store-1."
    assert (await rig.ended(run_id))["status"] == "expired"
    states = {name: one["state"] for name, one in (await rig.steps(run_id)).items()}
    # its worker ends the call at that moment too, and may be heard before the run's timer
    assert states.pop("a/store-1") in ("cancelled", "failed")
    assert states == {"a": "cancelled"}


async def test_a_call_is_cancelled_with_its_run(rig: WaitingRuns) -> None:
    run_id = await rig.begin("buy", calls=STORE, wait_s=60)
    await under_way(rig, run_id, "a/store-1")
    await rig.cancel(run_id)
    assert (await rig.ended(run_id))["status"] == "cancelled"
    assert (await rig.steps(run_id))["a/store-1"]["state"] == "cancelled"
    assert rig.done() == ["buy600000 charged"]


async def test_nothing_is_done_twice_though_worker_and_coordinator_are_killed(
    rig: WaitingRuns,
) -> None:
    run_ids = [await rig.begin("buy", calls=STORE, wait_s=3) for _ in range(4)]
    for run_id in run_ids:
        await under_way(rig, run_id, "a/store-1")
    await rig.platform.kill("coordinator")
    await rig.platform.wait_ready()
    assert {(await rig.ended(run_id))["status"] for run_id in run_ids} == {"succeeded"}
    assert Counter(rig.done()) == {
        "buy600000 charged": 4, "buy600000 stored": 4, "buy600000 shipped": 4,
        "0 stored": 4, "1 stored": 4, "2 stored": 4,
    }  # fmt: skip


async def test_a_worker_that_is_killed_loses_only_the_call_under_way(rig: WaitingRuns) -> None:
    run_id = await rig.begin("buy", calls=STORE, wait_s=2)
    await under_way(rig, run_id, "a/store-1")
    await rig.platform.kill("worker")
    assert (await rig.ended(run_id))["status"] == "succeeded"
    done = Counter(rig.done())
    assert done["buy600000 charged"] == done["buy600000 shipped"] == 1
    assert done["buy600000 stored"] in (1, 2)


async def test_a_pipeline_is_called_as_a_run_of_its_own_and_its_failure_is_told(
    rig: WaitingRuns,
) -> None:
    inner = {
        "type": "python",
        "handler": "waiting_handlers:store",
        "with": {"item": "{{ input.v }}"},
    }
    await rig.apply({"pipeline": "other", "nodes": {"only": inner}})
    calls = {"other": {"type": "pipeline", "pipeline": "other"}}
    run = await rig.ended(await rig.begin("ask_other", calls=calls))
    assert run["output"] == {"gave": {"item": "ask_other600000"}}
    missing = {"other": {"type": "pipeline", "pipeline": "nowhere"}}
    run = await rig.ended(await rig.begin("ask_other", slo_ms=500_000, calls=missing))
    assert run["output"] == {"failed": "pipeline_unknown"}
