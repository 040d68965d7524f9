"""Processes of a team with its own node types, beside the platform's; they are restarted when they die.
x"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hocket.cli.local.platform import Platform

RESTART_S = 0.1


class TeamWorker:
    """One process, kept running inside `running`."""

    def __init__(self, platform: Platform, env: dict[str, str], log: Path) -> None:
        self._env = {**os.environ, **env, "HOCKET_DATA_DIR": str(platform.data_dir)}
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the current process, or of the last one."""
        assert self._process is not None, "only while it runs"
        return self._process.pid

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep it running until the block ends."""
        await self._start()
        keeping = asyncio.create_task(self._keep(), name="team worker")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self._end()

    async def kill(self) -> None:
        """Kill it as a crash would; it is restarted."""
        await self._end()

    async def _keep(self) -> None:
        while True:
            assert self._process is not None, "it was started"
            await self._process.wait()
            await asyncio.sleep(RESTART_S)
            await self._start()

    async def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hocket.worker.command", "chaos.team_types:worker",
                env=self._env, stdout=log, stderr=log,
            )  # fmt: skip

    async def _end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
