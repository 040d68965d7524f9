"""The critical path of runs on the real platform: in Postgres, REST, the terminal and reports."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from hocket.cli.commands.runs.runs import print_run, read_run
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from support.handlers.path_handlers import MODEL_S
from support.places import HANDLERS

BOUND_S = 30.0
NAP = {"type": "python", "handler": "path_handlers:nap"}
THINK = {"type": "llm", "model": "thinker", "prompt": "?"}
MODEL_MS = 1_000 * MODEL_S


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    config = folder / "hocket.yaml"
    models = {"thinker": {"backends": [{"function": "path_handlers:think"}]}}
    config.write_text(yaml.safe_dump({"models": models}))
    async with Platform(
        folder / "d",
        env={"HOCKET_HANDLERS": "path_handlers", "PYTHONPATH": HANDLERS},
        services=("coordinator", "worker", "gateway", "admin"),
        worker_types=("python", "llm"),
        config=config,
    ) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def api(platform: Platform) -> Api:
    return platform.api()


def nap(seconds: float, *needs: str, **more: Any) -> dict[str, Any]:
    return NAP | {"with": {"seconds": seconds}, "needs": list(needs)} | more


async def run(api: Api, name: str, nodes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Run a pipeline once and return the run as REST shows it."""
    document = {"pipeline": name, "nodes": nodes} | spec
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    body = {"pipeline": name, "input": {}, "wait_ms": BOUND_S * 1000}
    end = await asyncio.to_thread(api.post, "/v1/runs", body)
    found: dict[str, Any] = await asyncio.to_thread(api.get, f"/v1/runs/{end['run_id']}")
    return found


def steps(found: dict[str, Any]) -> list[str]:
    return [step for step, _ in groupby(s["step"] for s in found["critical_path"]["segments"])]


def spent(found: dict[str, Any], step: str, kind: str) -> float:
    pieces = found["critical_path"]["segments"]
    return sum(s["ms"] for s in pieces if (s["step"], s["kind"]) == (step, kind))


async def test_a_run_shows_what_its_end_waited_for(api: Api) -> None:
    nodes = {
        "begin": nap(0.02),
        "short": nap(0.05, "begin"),
        "think": THINK | {"needs": ["begin"]},
        "end": nap(0.03, "short", "think"),
    }
    found = await run(api, "shown", nodes)
    assert steps(found) == ["begin", "think", "end"]
    assert spent(found, "think", "model") >= MODEL_MS - 1
    assert spent(found, "begin", "execution") >= 19
    assert spent(found, "end", "execution") >= 29
    at_ms = 0.0
    for segment in found["critical_path"]["segments"]:
        assert segment["from_ms"] == pytest.approx(at_ms, abs=1e-6)
        at_ms += segment["ms"]
    assert at_ms == pytest.approx(found["duration_ms"], abs=0.0021)
    assert sum(found["critical_path"]["by_kind"].values()) == pytest.approx(at_ms)


async def test_a_retry_and_its_backoff_are_told(api: Api) -> None:
    stumble = {"type": "python", "handler": "path_handlers:stumble"}
    retry = {"max_attempts": 2, "backoff_ms": 80, "on": ["transient"]}
    found = await run(
        api, "retried", {"a": stumble | {"with": {"seconds": 0.02, "name": "r"}, "retry": retry}}
    )
    assert found["status"] == "succeeded"
    assert spent(found, "a", "backoff") >= 80
    assert {s["attempt"] for s in found["critical_path"]["segments"]} == {1, 2}


async def test_a_sub_run_s_time_is_told_to_its_parent(api: Api) -> None:
    await run(api, "child", {"think": THINK, "end": nap(0.05, "think")})
    call = {"type": "pipeline", "pipeline": "child"}
    found = await run(api, "parent", {"c": call, "z": nap(0.0, "c")})
    assert spent(found, "c", "model") >= MODEL_MS - 1
    assert spent(found, "c", "execution") >= 49


async def test_a_run_that_expired_shows_the_step_it_was_cut_off_at(api: Api) -> None:
    nodes = {"a": nap(0.02), "b": nap(20.0, "a")}
    found = await run(api, "expired", nodes, slo_ms=400)
    assert found["status"] in ("expired", "failed")
    assert steps(found) == ["a", "b"]


async def test_the_path_survives_the_death_of_the_coordinator(platform: Platform, api: Api) -> None:
    document = {"pipeline": "survives", "nodes": {"a": nap(0.03), "b": nap(1.5, "a")}}
    await asyncio.to_thread(api.post, "/v1/pipelines", document)
    receipt = await asyncio.to_thread(api.post, "/v1/runs", {"pipeline": "survives", "input": {}})
    path = f"/v1/runs/{receipt['run_id']}"
    async with asyncio.timeout(BOUND_S):
        while not await dispatched(api, path, "b"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await platform.kill("coordinator")
    await platform.wait_ready()
    async with asyncio.timeout(BOUND_S):
        while (found := await asyncio.to_thread(api.get, path))["status"] == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert steps(found) == ["a", "b"]
    assert spent(found, "a", "execution") >= 29
    assert spent(found, "b", "execution") >= 1_499


async def dispatched(api: Api, path: str, step: str) -> bool:
    found = (await asyncio.to_thread(api.get, f"{path}/steps"))["steps"]
    return any(s["step"] == step for s in found)


async def test_reports_sum_paths_up_and_agree_with_the_runs_times(
    platform: Platform, api: Api
) -> None:
    for _ in range(3):
        await run(api, "reported", {"a": nap(0.02), "t": THINK | {"needs": ["a"]}})
    connection = await asyncpg.connect(platform.database_url, timeout=BOUND_S)
    try:
        rows = await connection.fetch(
            "SELECT * FROM report.critical_path WHERE pipeline = 'reported'"
        )
        per_run = await connection.fetch(
            """
            SELECT run_id, sum(ms) AS ms, max(from_ms + ms) AS until_ms,
                   extract(epoch FROM finished_at - accepted_at) * 1000 AS duration_ms
            FROM report.run_critical_path WHERE pipeline = 'reported'
            GROUP BY run_id, finished_at, accepted_at
            """
        )
    finally:
        await connection.close()
    assert len(per_run) == 3
    for row in per_run:
        assert row["ms"] == row["until_ms"]
        assert abs(row["ms"] - row["duration_ms"]) <= Decimal("0.002")  # two moments, rounded
    assert sum(row["ms"] for row in rows) == sum(row["ms"] for row in per_run)
    assert sum(row["share"] for row in rows) == pytest.approx(Decimal(1))
    by_kind = {(row["node"], row["kind"]): row for row in rows}
    assert by_kind["t", "model"]["runs"] == 3
    assert by_kind["t", "model"]["ms"] >= Decimal(3 * (MODEL_MS - 1))


async def test_the_terminal_shows_the_path(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    found = await run(api, "drawn", {"a": nap(0.02), "t": THINK | {"needs": ["a"]}})
    print_run(await asyncio.to_thread(read_run, api, found["run_id"]), width=100)
    shown = capsys.readouterr().out
    assert "where the time went: ▓ model " in shown
    assert "CRITICAL PATH" in shown
