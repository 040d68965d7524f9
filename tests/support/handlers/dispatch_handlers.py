"""Handlers for `test_dispatching.py`, imported by the worker process."""

import asyncio
import os
from pathlib import Path
from typing import Any

from hocket.workers.runtime.execution.context import Context


async def nap(given: Any, context: Context) -> Any:
    """Note that this attempt started, and sleep for `ms`."""
    journal = os.open(Path(os.environ["DISPATCH_JOURNAL"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{context.attempt_id}\n".encode())
    os.close(journal)
    await asyncio.sleep(given["ms"] / 1000)
    return given
