"""Handlers that worker processes under test import."""

import asyncio
from pathlib import Path
from typing import Any

from hocket.workers.runtime.context import Context


async def wait_in_first_delivery(value: Any, context: Context) -> dict[str, int]:
    """Leave a mark; in the first delivery wait to be killed."""
    (Path(value["dir"]) / f"started-{context.delivery}").touch()
    if context.delivery == 1:
        await asyncio.Event().wait()
    return {"delivery": context.delivery}
