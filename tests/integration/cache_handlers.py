"""Handlers for `test_cache.py`, imported by the worker processes: each call stands in a journal."""

import asyncio
import os
from pathlib import Path
from typing import Any

FOLDER = "CACHE_TEST_FOLDER"


async def count(given: dict[str, Any]) -> dict[str, Any]:
    """Write the call into the journal and return the input."""
    _note(given)
    return {"v": given["v"]}


async def gated(given: dict[str, Any]) -> dict[str, Any]:
    """Write the call into the journal, then wait until the file of the gate is there."""
    _note(given)
    gate = Path(os.environ[FOLDER]) / f"gate-{given['v']}"
    while not gate.exists():  # noqa: ASYNC110 (a file has no event)
        await asyncio.sleep(0.01)
    if gate.read_text() == "fail":
        gate.write_text("pass")
        raise ValueError("told to fail")
    return {"v": given["v"]}


def _note(given: dict[str, Any]) -> None:
    line = f"{given['v']}\n".encode()
    journal = os.open(Path(os.environ[FOLDER]) / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line)
    os.close(journal)
