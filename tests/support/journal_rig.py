"""A platform whose handlers keep a journal, for tests of whole runs (handlers: `journal_handlers.py`).
x"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import yaml

from hocket.cli.local.platform import Platform
from hocket.cli.terminal.errors import ApiRefused
from support.places import HANDLERS
from support.shared.commands import run_hocket

BOUND_S = 40
PARTITIONS = 4


class Rig:
    """The platform, and access to what the handlers wrote."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.folder = folder
        self.api = platform.api()

    async def apply(self, name: str, nodes: dict[str, Any], **spec: Any) -> None:
        await asyncio.to_thread(
            self.api.post, "/v1/pipelines", {"pipeline": name, "nodes": nodes} | spec
        )

    async def submit(self, name: str, given: Any) -> str:
        body = {"pipeline": name, "input": given}
        receipt = await asyncio.to_thread(self.api.post, "/v1/runs", body)
        return str(receipt["run_id"])

    async def run(self, name: str, given: Any) -> Any:
        body = {"pipeline": name, "input": given, "wait_ms": BOUND_S * 1_000}
        return await asyncio.to_thread(self.api.post, "/v1/runs", body)

    async def ended(self, run_id: str) -> dict[str, Any]:
        async def look() -> Any:
            try:
                run = await asyncio.to_thread(self.api.get, f"/v1/runs/{run_id}")
            except ApiRefused as error:
                if error.info().code != "run_unknown":
                    raise
                return None  # its coordinator was killed before the commit
            return run if run["status"] != "running" else None

        found: dict[str, Any] = await until(look)
        return found

    async def steps(self, run_id: str, *, values: bool = False) -> dict[str, Any]:
        page = await asyncio.to_thread(
            self.api.get, f"/v1/runs/{run_id}/steps", values=values or None, limit=500
        )
        return {step["step"]: step for step in page["steps"]}

    def calls(self, value: str) -> int:
        journal = self.folder / "journal"
        return journal.read_text().split().count(value) if journal.exists() else 0

    def open_gate(self, value: str, text: str = "pass") -> None:
        gate = self.folder / f"gate-{value}"
        written = gate.with_suffix(".new")
        written.write_text(text)
        written.replace(gate)  # a reader sees the complete file or none

    async def sql(self, query: str, *values: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.platform.database_url, timeout=10)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(query, *values)
            return rows
        finally:
            await connection.close()


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Call `look` until it finds something, and return it."""
    async with asyncio.timeout(BOUND_S):
        while not (found := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def command(rig: Rig, *arguments: str) -> str:
    """Run the `hocket` command against the platform and return what it prints."""
    named = ("--data-dir", str(rig.platform.data_dir))
    done = await asyncio.to_thread(run_hocket, *named, *arguments, timeout_s=BOUND_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@asynccontextmanager
async def journal_rig() -> AsyncIterator[Rig]:
    """Run a platform with one priced model, `probe`, and handlers that write what they do."""
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    models = {"probe": {"backends": [{
        "function": "fault_handlers:complete", "prices": {"request_usd": "0.01"},
    }]}}  # fmt: skip
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": models}))
    environment = {
        "HOCKET_HANDLERS": "journal_handlers",
        "PYTHONPATH": HANDLERS,
        "JOURNAL_FOLDER": str(folder),
        "FAULT_JOURNAL": str(folder / "calls"),
        "HOCKET_PARTITIONS": str(PARTITIONS),
    }
    async with Platform(folder / "d", env=environment, config=config) as platform:
        yield Rig(platform, folder)
    shutil.rmtree(folder)
