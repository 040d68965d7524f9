"""A tenant whose data was deleted begins anew: processes that remember it take nothing old for new."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.coordinator.storage.pipelines.pipeline_catalog import RELEASE_FOR_MS

ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
BOUND_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


async def asked(api: Api, method: str, *arguments: object) -> dict[str, Any]:
    return await asyncio.to_thread(getattr(api, method), *arguments)


async def ran(api: Api, **task: object) -> dict[str, Any]:
    wait = {"pipeline": "echo", "wait_ms": BOUND_S * 1_000}
    return await asked(api, "post", "/v1/runs", wait | task)


async def test_keys_and_versions_of_deleted_data_begin_anew(folder: Path) -> None:
    async with Platform(folder, services=("coordinator", "worker", "admin")) as platform:
        api = platform.api()
        for said in ("first", "second"):
            nodes = {"a": ECHO | {"with": {"said": said}}}
            applied = await asked(
                api, "post", "/v1/pipelines", {"pipeline": "echo", "nodes": nodes}
            )
            run = await ran(api, idempotency_key="k")
            assert (run["status"], run["output"]) == ("succeeded", {"said": said}), applied
            assert (await ran(api, idempotency_key="k"))["run_id"] == run["run_id"]
            done = await asked(api, "post", "/v1/data/delete", {"tenant": "default"})
            assert done["complete"]
            found = await asked(api, "get", "/v1/runs")
            assert found["runs"] == []
            await asyncio.sleep(RELEASE_FOR_MS / 1_000)  # until then coordinators choose as before
