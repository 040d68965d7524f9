"""`hocket dev` on a platform: each save is a run, what is wrong is told, nothing is left running."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from hocket.cli.local.platform import Platform

BOUND_S = 90.0
PIPELINE = """\
pipeline: greet
slo_ms: 60000
nodes:
  hello:
    type: team.greet
    with: {name: "{{ input.name }}"}
"""
WORKER = """\
import asyncio
from hocket.worker import Worker

worker = Worker()


@worker.node("team.greet")
async def greet(given: dict) -> dict:
    return {"text": "Hello " + given["name"]}
"""


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    (tmp_path / "greet.yaml").write_text(PIPELINE)
    (tmp_path / "team.py").write_text(WORKER)
    (tmp_path / "input.json").write_text('{"name": "Ada"}')
    async with Platform(tmp_path / "d") as platform:
        yield platform


class Terminal:
    """What the command printed, and who waits for more of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""
        self._seen = 0

    async def until(self, pattern: str) -> str:
        """Return what was printed since the last call, once it has a pattern."""
        assert self.process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            while re.search(pattern, self.text[self._seen :]) is None:
                part = await self.process.stdout.read(65_536)
                assert part, f"it ended: {self.text}"
                self.text += part.decode()
        new, self._seen = self.text[self._seen :], len(self.text)
        return new


@asynccontextmanager
async def developing(platform: Platform, folder: Path) -> AsyncIterator[Terminal]:
    words = ["-m", "hocket.cli", "--data-dir", str(platform.data_dir), "dev", "greet.yaml"]
    words += ["--input", "@input.json", "--worker", "team:worker"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=folder, stdout=PIPE, stderr=STDOUT
    )
    try:
        yield Terminal(process)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def test_each_save_is_a_run_and_what_it_changed_is_shown(
    platform: Platform, tmp_path: Path
) -> None:
    code, waits = tmp_path / "team.py", "waiting for changes"
    async with developing(platform, tmp_path) as terminal:
        assert '"Hello Ada"' in await terminal.until(waits)

        code.write_text(WORKER.replace("Hello", "Good morning"))
        text = await terminal.until(waits)
        assert "team.py changed" in text
        assert '"Good morning Ada"' in text
        assert "hello  other output" in text
        assert "first difference" in text

        (tmp_path / "greet.yaml").write_text(PIPELINE.replace("team.greet", "python"))
        assert "error: `nodes.hello.handler` is not valid" in await terminal.until(waits)

        (tmp_path / "greet.yaml").write_text(PIPELINE)
        (tmp_path / "input.json").write_text('{"name": "Bob"}')
        assert '"Good morning Bob"' in await terminal.until(f"Bob(.|\n)*{waits}")

        code.write_text(WORKER.replace("    return", "    await asyncio.sleep(600)\n    return"))
        await terminal.until("running greet")
        await asyncio.to_thread(wait_for_a_run, platform)
        code.write_text(WORKER)
        text = await terminal.until(f"Hello Bob(.|\n)*{waits}")
        assert re.search(r"run r[0-9a-f]{24} is cancelled", text)

        terminal.process.terminate()
        async with asyncio.timeout(BOUND_S):
            assert await terminal.process.wait() == 0
    runs = platform.api().get("/v1/runs", status="running")["runs"]
    assert runs == []


async def test_it_runs_what_is_in_the_file_whichever_version_is_activated(
    platform: Platform, tmp_path: Path
) -> None:
    api = platform.api()
    api.post("/v1/pipelines", yaml.safe_load(PIPELINE.replace("{{ input.name }}", "nobody")))
    api.post("/v1/pipelines/greet/activate", {"version": 1})
    async with developing(platform, tmp_path) as terminal:
        text = await terminal.until("waiting for changes")
    assert "running greet version 2" in text
    assert '"Hello Ada"' in text


def wait_for_a_run(platform: Platform) -> None:
    """Wait until a run is in flight and known."""
    while not platform.api().get("/v1/runs", status="running")["runs"]:
        pass
