"""`on_infeasible` on the real platform: a slow node is given up in time, or the run at once."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from support.places import HANDLERS

NAP = {"type": "python", "handler": "coordinator_handlers:nap"}
BOUND_S = 30


def nap(ms: float, expected_ms: float, **more: Any) -> dict[str, Any]:
    return NAP | {"with": {"ms": ms}, "expect": {"mean_ms": expected_ms}} | more


@pytest.fixture(scope="module")
async def journal() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder / "journal"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def api(journal: Path) -> AsyncIterator[Api]:
    environment = {
        "HOCKET_HANDLERS": "coordinator_handlers",
        "PYTHONPATH": HANDLERS,
        "DISPATCH_JOURNAL": str(journal),
    }
    services = ("coordinator", "worker", "admin")
    async with Platform(
        journal.parent / "d", env=environment, services=services, worker_types=("python",)
    ) as platform:
        yield platform.api()


async def run(api: Api, name: str, nodes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    await asyncio.to_thread(api.post, "/v1/pipelines", {"pipeline": name, "nodes": nodes} | spec)
    body = {"pipeline": name, "input": {}, "wait_ms": BOUND_S * 1000}
    end: dict[str, Any] = await asyncio.to_thread(api.post, "/v1/runs", body)
    return end


def started(journal: Path, run_id: str) -> list[str]:
    """Return the attempts of a run that a worker began."""
    lines = journal.read_text().split() if journal.exists() else []
    return [line.removeprefix(f"{run_id}:") for line in lines if line.startswith(run_id)]


async def test_a_node_that_is_slower_than_expected_is_replaced_in_time(
    api: Api, journal: Path
) -> None:
    nodes = {
        "draft": nap(20_000, 1_000, fast=nap(10, 200)),
        "end": nap(10, 200, needs=["draft"]),
    }
    end = await run(api, "replaced", nodes, slo_ms=3_000, on_infeasible="degrade")
    assert (end["status"], end["met_deadline"]) == ("degraded", True)
    assert started(journal, end["run_id"]) == ["draft:1", "draft!0:1", "end:1"]
    steps = await asyncio.to_thread(api.get, f"/v1/runs/{end['run_id']}/steps")
    states = {step["step"]: step["state"] for step in steps["steps"]}
    assert states == {"draft": "succeeded", "draft!0": "succeeded", "end": "succeeded"}


async def test_a_run_without_time_takes_the_fast_way_from_the_start(
    api: Api, journal: Path
) -> None:
    nodes = {
        "draft": nap(5_000, 5_000, fast=nap(10, 100)),
        "extra": nap(5_000, 5_000, needs=["draft"], optional=True),
        "end": nap(10, 100, needs=["extra"]),
    }
    end = await run(api, "short", nodes, slo_ms=3_000, on_infeasible="degrade")
    assert (end["status"], end["met_deadline"]) == ("degraded", True)
    assert started(journal, end["run_id"]) == ["draft!0:1", "end:1"]


async def test_an_infeasible_run_ends_at_once_and_its_worker_stops(api: Api, journal: Path) -> None:
    nodes = {"slow": nap(20_000, 500), "end": nap(10, 2_000, needs=["slow"])}
    end = await run(api, "hopeless", nodes, slo_ms=3_000, on_infeasible="fail")
    assert (end["status"], end["error"]["code"]) == ("failed", "deadline_infeasible")
    # it was given up when what is left of the time was what `end` takes: a second after it began
    assert 900 <= end["duration_ms"] < 3_000
    assert started(journal, end["run_id"]) == ["slow:1"]


async def test_a_step_may_run_beyond_its_useful_finish_where_the_pipeline_only_hopes(
    api: Api,
) -> None:
    nodes = {"a": nap(1_500, 100), "end": nap(10, 2_900, needs=["a"])}
    end = await run(api, "hoping", nodes, slo_ms=3_000)
    assert end["status"] == "succeeded"
