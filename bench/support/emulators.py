"""Run `hocket emulate` as a separate process for benchmarks."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml


class NotStarted(Exception):
    """The emulator ended before it told of all its engines."""


@asynccontextmanager
async def emulated(
    folder: Path, document: Mapping[str, Any]
) -> AsyncIterator[Mapping[str, list[str]]]:
    """Run the engines of a configuration; yield the base URLs by model."""
    config = folder / "engines.yaml"
    config.write_text(yaml.safe_dump(dict(document)), "utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hocket.cli",
        "emulate",
        "--config",
        str(config),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    urls: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for _ in range(sum(group.get("replicas", 1) for group in document["engines"])):
            line = (await process.stdout.readline()).decode().split()
            if not line:
                raise NotStarted("the emulator did not start")
            model, url = line[:2]
            urls[model].append(url)
        yield urls
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
