"""A handler whose journal shows when the runs of each key were in progress."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

JOURNAL = "FLOW_JOURNAL"


async def held(given: dict[str, Any]) -> None:
    """Record the run's key and name at its beginning and at its end, `ms` later. The run `first` ends
    only when there is a file with the key's name beside the journal."""
    _note(f"{given['key']} {given['name']} begin")
    await asyncio.sleep(given["ms"] / 1_000)
    release = Path(os.environ[JOURNAL]).parent / given["key"]
    while given["name"] == "first" and not release.exists():  # noqa: ASYNC110 (a test makes it)
        await asyncio.sleep(0.02)
    _note(f"{given['key']} {given['name']} end")


def _note(line: str) -> None:
    file = os.open(Path(os.environ[JOURNAL]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{time.monotonic_ns()} {line}\n".encode())
    os.close(file)
