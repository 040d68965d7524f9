"""Three workers of a package, rolled to its next version while runs come: none may fail."""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from sdk.environments import Environment
from support.worker_rig import eventually

PROCESSES = 3
AT_ONCE = 16
BOUND_S = 60.0
PACKAGE = '''
import asyncio
from pydantic import BaseModel
from hocket.worker import Context, Worker

worker = Worker()


class Greeting(BaseModel):
    text: str
    version: str


@worker.node("{type}", version="{version}", concurrency=4, timeout_ms=20_000)
async def greet(somebody: dict[str, str], context: Context) -> Greeting:
    """Greet somebody."""
    await asyncio.sleep(0.02)
    return Greeting(text="hello " + somebody["name"], version="{version}")
'''


@dataclass
class Rolled:
    """What came of the runs."""

    runs: int
    statuses: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """Return a line for people."""
        versions = ", ".join(f"{count} by version {name}" for name, count in self.versions.items())
        return f"{self.runs} runs while {PROCESSES} workers were rolled: {versions or 'none'}"

    def faults(self) -> list[str]:
        """Return what does not hold."""
        faults = []
        if self.statuses != {"succeeded": self.runs}:
            faults.append(f"{self.runs} runs ended so: {dict(self.statuses)}")
        if set(self.versions) != {"1", "2"}:
            faults.append(f"the runs were answered by {sorted(self.versions)}")
        return faults


async def roll(platform: Platform, made: Environment, runs: int) -> Rolled:
    """Start workers, let runs come, and replace each worker by one of the next version."""
    node_type = f"greet.py{made.name.replace('.', '').replace('-', '_')}"
    api = platform.api()
    name = f"greet-{made.name.replace('.', '')}"
    greet = {"type": node_type, "with": {"name": "{{ input.name }}"}}
    spec = {"pipeline": name, "nodes": {"greet": greet}, "slo_ms": 120_000}
    await asyncio.to_thread(api.post, "/v1/pipelines", spec)
    rolled = Rolled(runs)
    for version in ("1", "2"):
        _write(made.folder / f"v{version}", node_type, version)
    old = [await _start(platform, made, "1") for _ in range(PROCESSES)]
    await _until_running(api, node_type, PROCESSES)
    places, some_ended, gone = asyncio.Semaphore(AT_ONCE), asyncio.Event(), asyncio.Event()

    async def one(number: int) -> None:
        async with places:
            if number == runs // 2:
                await gone.wait()  # runs come before, while and after they are rolled
            body = {"pipeline": name, "input": {"name": f"n{number}"}, "wait_ms": 60_000}
            ended = await asyncio.to_thread(api.post, "/v1/runs", body)
        rolled.statuses[ended["status"]] += 1
        if rolled.statuses.total() == runs // 10:
            some_ended.set()
        if ended.get("output"):
            rolled.versions[ended["output"]["version"]] += 1

    async def replace() -> list[asyncio.subprocess.Process]:
        new = []
        await some_ended.wait()
        for process in old:
            new.append(await _start(platform, made, "2"))
            process.terminate()
            assert await asyncio.wait_for(process.wait(), BOUND_S) == 0
        gone.set()
        return new

    new: list[asyncio.subprocess.Process] = []
    try:
        replacing = asyncio.create_task(replace())
        await asyncio.gather(*(one(number) for number in range(runs)))
        new = await replacing
    finally:
        for process in (*old, *new):
            if process.returncode is None:
                process.terminate()
                await process.wait()
    return rolled


def _write(folder: Path, node_type: str, version: str) -> None:
    folder.mkdir()
    (folder / "greeting.py").write_text(PACKAGE.format(type=node_type, version=version))


async def _start(platform: Platform, made: Environment, version: str) -> asyncio.subprocess.Process:
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    return await asyncio.create_subprocess_exec(
        made.command,
        "greeting:worker",
        cwd=made.folder / f"v{version}",
        env=keep | {"HOCKET_DATA_DIR": str(platform.data_dir)},
        stdout=(made.folder / f"v{version}" / "log").open("a"),
    )


async def _until_running(api: Api, node_type: str, workers: int) -> None:
    async def fits() -> bool:
        found: Any = await asyncio.to_thread(api.get, "/v1/types", limit=500)
        counts = [
            queue["workers"]
            for one in found["types"]
            if one["type"] == node_type
            for queue in one["queues"]
        ]
        return counts == [workers]

    await eventually(fits)
