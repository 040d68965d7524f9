"""What docs/how-to/backup.md says: a copy of the data folder is the whole platform, and Postgres goes on
with a NATS that has lost everything."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api

ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"v": "{{ input.v }}"}}
BOUND_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Api]:
    async with Platform(folder, services=("coordinator", "worker", "admin")) as platform:
        yield platform.api()


async def asked(api: Api, method: str, *arguments: object) -> dict:
    return await asyncio.to_thread(getattr(api, method), *arguments)


async def until(api: Api, path: str, holds: Callable[[dict], object]) -> dict:
    async with asyncio.timeout(BOUND_S):
        while not holds(found := await asked(api, "get", path)):  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.05)
        return found


async def output_of(api: Api, pipeline: str, value: object) -> object:
    task = {"pipeline": pipeline, "input": {"v": value}, "wait_ms": BOUND_S * 1_000}
    return (await asked(api, "post", "/v1/runs", task))["output"]


async def test_a_copy_goes_on_and_so_does_postgres_with_an_empty_nats(folder: Path) -> None:
    approval = {"ask": {"type": "approval"}, "after": ECHO | {"needs": ["ask"]}}
    async with running(folder / "first") as api:
        await asked(api, "post", "/v1/pipelines", {"pipeline": "echo", "nodes": {"a": ECHO}})
        await asked(api, "post", "/v1/pipelines", {"pipeline": "waits", "nodes": approval})
        assert await output_of(api, "echo", 1) == {"v": 1}
        task = {"pipeline": "waits", "input": {"v": 3}, "idempotency_key": "k"}
        run_id = (await asked(api, "post", "/v1/runs", task))["run_id"]
        await until(api, f"/v1/runs/{run_id}/steps", lambda found: found["steps"])
    command = ["cp", "-a", folder / "first", folder / "copy"]
    await asyncio.to_thread(subprocess.run, command, check=True)
    shutil.rmtree(folder / "first")
    async with running(folder / "copy") as api:
        assert (await asked(api, "get", f"/v1/runs/{run_id}"))["status"] == "running"
        assert await output_of(api, "echo", 2) == {"v": 2}
    shutil.rmtree(folder / "copy" / "nats" / "store")
    async with running(folder / "copy") as api:
        assert await output_of(api, "echo", 3) == {"v": 3}
        answer = {"name": "ask", "payload": {"approved": True}}
        await asked(api, "post", f"/v1/runs/{run_id}/signals", answer)
        run = await until(api, f"/v1/runs/{run_id}", lambda found: found["finished_at"])
        assert (run["status"], run["output"]) == ("succeeded", {"v": 3})
