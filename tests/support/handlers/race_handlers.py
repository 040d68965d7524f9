"""Handlers and models for `test_race_cancellation.py`, imported by the worker and the gateway."""

import asyncio
from typing import Any

from hocket.schemas.messages import CallRequest, Completion
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context

HANGING = 2
"""Number of calls that must hang before the winner is answered."""
_hanging: list[str] = []
_enough = asyncio.Event()


async def ask(given: dict[str, Any], context: Context) -> str:
    """Call the named models one after another; return the last answer."""
    answer = ""
    for model in given["models"]:
        answer = (await context.model(model, "?")).text
    return answer


async def at_second(given: Any, context: Context) -> str:
    """Call a model in each attempt, and succeed in the second one."""
    answer = (await context.model("bad", "?", journal=False)).text
    if context.step.attempt == 1:
        raise Retryable("the first attempt is told to fail")
    return answer


async def bad(request: CallRequest) -> Completion:
    """Give an answer that no race accepts."""
    return Completion(text="bad", input_tokens=len(request.messages))


async def good(request: CallRequest) -> Completion:
    """Give the answer that the race accepts, once the other calls hang."""
    await _enough.wait()
    return Completion(text="good", input_tokens=len(request.messages))


async def hang(request: CallRequest) -> Completion:
    """Never answer."""
    _hanging.append(request.call_id)
    if len(_hanging) >= HANGING:
        _enough.set()
    await asyncio.Event().wait()
    return Completion()
