"""Handlers that worker processes under test import."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

from hocket.workers.runtime.execution.context import Context


async def wait_in_first_delivery(value: Any, context: Context) -> dict[str, int]:
    """Leave a mark; in the first delivery, wait to be killed."""
    (Path(value["dir"]) / f"started-{context.delivery}").touch()
    if context.delivery == 1:
        await asyncio.Event().wait()
    return {"delivery": context.delivery}


async def block_in_first_delivery(value: Any, context: Context) -> dict[str, int]:
    """In the first delivery, compute without a pause, so that nothing else runs in the process."""
    while context.delivery == 1:
        pass
    return {"delivery": context.delivery}


async def die_in_first_delivery(value: Any, context: Context) -> dict[str, int]:
    """In the first delivery, end the whole process."""
    if context.delivery == 1:
        os._exit(3)
    return {"delivery": context.delivery}


async def die(value: Any) -> None:
    """End the whole process."""
    os._exit(3)


async def take_a_while(value: Any) -> str:
    """Run for longer than the worker lives after `die` begins beside it."""
    await asyncio.sleep(1.0)
    return "well"


def never_end(value: Any) -> None:
    """Block a thread forever."""
    threading.Event().wait()
