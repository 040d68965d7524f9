"""Run processes for a benchmark, each on a free port, and wait until they respond."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

START_TIMEOUT_S = 90


class BenchFailed(Exception):
    """An answer, or a record, is not what it must be."""


def percentile(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


@asynccontextmanager
async def process(
    *command: str, core: int, log: Path, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("ab") as output:
        running = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env={**os.environ, **env}
        )
    os.sched_setaffinity(running.pid, {core})
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def answering(port: int, running: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and running.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise BenchFailed(f"nothing listens on {port}: {tail(log)}")


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2_000:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
