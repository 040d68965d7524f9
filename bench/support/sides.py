"""Platforms that are measured against each other, each in its own process: one is loaded, the other
idle."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats
import structlog
import uvloop

from bench.support.load import CONNECT_TIMEOUT_S, TENANT, WORKLOADS, Load, Round
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform

START_S = 60.0


@dataclass
class Side:
    """One of the platforms, and its measurements."""

    name: str
    load: Load
    pid: int
    database_url: str
    loaded: list[Round] = field(default_factory=list)
    alone: list[Round] = field(default_factory=list)


def of_hocket(pipeline: str) -> list[str]:
    """Return the Python arguments that start a platform with a workload's pipeline."""
    return ["-m", "bench.support.sides", pipeline]


@asynccontextmanager
async def opened(
    name: str, command: list[str], env: Mapping[str, str], pipeline: str
) -> AsyncIterator[Side]:
    """Start a platform and connect to it.

    `command` prints the URLs of its NATS and Postgres as JSON, and lives until its standard input
    ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        nats_url, database_url = json.loads(line)
        client = await nats.connect(nats_url, connect_timeout=CONNECT_TIMEOUT_S)
        load = Load(client, pipeline)
        await load.start()
        yield Side(name, load, process.pid, database_url)
        await client.close()
    finally:
        process.stdin.close()
        await process.wait()


async def serve(pipeline: str) -> None:
    """Run a platform until standard input ends."""
    env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS}
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder), env=env, log_level="warning") as platform:
            api = platform.api(TENANT)
            document = WORKLOADS[pipeline].pipeline(pipeline)
            await asyncio.to_thread(api.post, "/v1/pipelines", document)
            print(json.dumps([platform.nats_url, platform.database_url]), flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", choices=list(WORKLOADS))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(serve(parser.parse_args().pipeline))
