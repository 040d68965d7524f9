"""Handlers that the processes under test import: a slow step, and a model that keeps a journal."""

import asyncio
import os
from pathlib import Path
from typing import Any

from hocket.schemas.messages import CallRequest, Completion

JOURNAL = "FAULT_JOURNAL"


async def slow(given: dict[str, Any]) -> dict[str, Any]:
    """Sleep for a moment, to leave time for a fault."""
    await asyncio.sleep(0.05)
    return {"n": given.get("n")}


async def complete(request: CallRequest) -> Completion:
    """Write the call into the journal, as the backend's own meter, and answer."""
    line = f"{request.call_id}\n".encode()
    journal = os.open(Path(os.environ[JOURNAL]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line)
    os.close(journal)
    await asyncio.sleep(0.05)
    return Completion(text="done", input_tokens=3, output_tokens=1, finish_reason="stop")
