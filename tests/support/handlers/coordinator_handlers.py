"""Handlers for the workers beside coordinators under test; each records its executions in a journal."""

import asyncio
import os
from pathlib import Path
from typing import Any

from hocket.workers.runtime.execution.context import Context

JOURNAL = "COORDINATOR_JOURNAL"
DISPATCH_JOURNAL = "DISPATCH_JOURNAL"


async def noted(given: dict[str, Any]) -> dict[str, Any]:
    """Write the run's key and the step into the journal, and sleep for a moment."""
    _note(JOURNAL, f"{given['key']} {given['step']}")
    await asyncio.sleep(0.02)
    return {"step": given["step"]}


async def nap(given: Any, context: Context) -> Any:
    """Record that this attempt started, and sleep for `ms`."""
    _note(DISPATCH_JOURNAL, context.attempt_id)
    await asyncio.sleep(given["ms"] / 1000)
    return given


def _note(journal: str, line: str) -> None:
    file = os.open(Path(os.environ[journal]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)
