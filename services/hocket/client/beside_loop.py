"""Reads large answers in a thread, so that the event loop goes on meanwhile."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from hocket.client.live import RunStream, read_event
from hocket.client.requests import read_answer

LARGE_BYTES = 256 * 1024
"""A smaller answer is read within a few milliseconds."""
THREADS = 2
"""More would not be faster, because only one at a time computes."""


async def async_read_answer(kind: Any, url: str, status: int, body: bytes) -> Any:
    """Read an answer as `read_answer` does."""
    if len(body) < LARGE_BYTES:
        return read_answer(kind, url, status, body)
    return await _beside(partial(read_answer, kind, url, status, body, in_thread=True))


async def async_read_event(stream: RunStream, url: str, event: str, data: str) -> Any:
    """Read an event as `read_event` does."""
    if len(data) < LARGE_BYTES:
        return read_event(stream, url, event, data)
    return await _beside(partial(read_event, stream, url, event, data, in_thread=True))


async def _beside(read: Callable[[], Any]) -> Any:
    """Read in a thread that nothing else uses: those of the event loop may all wait for this answer."""
    return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), read)


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process: one that was forked does not have those of its parent."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix=f"hocket-client-{process}")
