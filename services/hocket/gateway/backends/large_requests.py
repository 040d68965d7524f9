"""Converts calls for backends that do not speak OpenAI's API: large ones in a thread, because that takes
up to seconds, in which no other call would go on.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from hocket.gateway.core.calls.request_content import tokens
from hocket.schemas.messages import CallRequest

T = TypeVar("T")

LARGE_TOKENS = 25_000
"""A call that sends so many tokens is converted in a thread."""


async def converted(request: CallRequest, convert: Callable[[CallRequest], T]) -> T:
    """Return what a function makes of a call, or raise what it raises."""
    if tokens(request) < LARGE_TOKENS:
        return convert(request)
    return await asyncio.to_thread(convert, request)
