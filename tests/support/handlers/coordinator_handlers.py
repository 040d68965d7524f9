"""Handlers that the workers under test import: each writes what it executed into a journal."""

import asyncio
import os
from pathlib import Path
from typing import Any

JOURNAL = "COORDINATOR_JOURNAL"


async def noted(given: dict[str, Any]) -> dict[str, Any]:
    """Write the run's key and the step into the journal, and take a moment."""
    line = f"{given['key']} {given['step']}\n".encode()
    journal = os.open(Path(os.environ[JOURNAL]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line)
    os.close(journal)
    await asyncio.sleep(0.02)
    return {"step": given["step"]}
