"""Handlers and models for `test_race_cancellation.py`, imported by the worker and the gateway."""

import asyncio
from typing import Any

from hocket.schemas.messages import CallRequest, Completion
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context

HANGING = 2
"""Calls that must hang before the winner is answered."""
_hanging: list[str] = []
_enough = asyncio.Event()


async def ask(given: dict[str, Any], context: Context) -> str:
    """Call the named models one after the other; return the last one's answer."""
    answer = ""
    for model in given["models"]:
        answer = (await context.model(model, "?")).text
    return answer


async def at_second(given: Any, context: Context) -> str:
    """Call a model in each attempt, and succeed at the second one."""
    answer = (await context.model("bad", "?", journal=False)).text
    if context.step.attempt == 1:
        raise Retryable("the first attempt is told to fail")
    return answer


async def bad(request: CallRequest) -> Completion:
    """Answer what no race wants."""
    return Completion(text="bad", input_tokens=len(request.messages))


async def good(request: CallRequest) -> Completion:
    """Answer what the race wants, once the others hang."""
    await _enough.wait()
    return Completion(text="good", input_tokens=len(request.messages))


async def hang(request: CallRequest) -> Completion:
    """Never answer."""
    _hanging.append(request.call_id)
    if len(_hanging) >= HANGING:
        _enough.set()
    await asyncio.Event().wait()
    return Completion()
