"""Handlers and a model for `test_critical_paths.py`, each of a given duration."""

import asyncio
from typing import Any

from hocket.schemas.messages import CallRequest, Completion

MODEL_S = 0.15


async def nap(given: dict[str, Any]) -> dict[str, Any]:
    """Sleep for `seconds`."""
    await asyncio.sleep(given["seconds"])
    return given


_tried: set[str] = set()


async def stumble(given: dict[str, Any]) -> dict[str, Any]:
    """Sleep for `seconds`, and fail the first time that a name occurs."""
    await asyncio.sleep(given["seconds"])
    if given["name"] not in _tried:
        _tried.add(given["name"])
        raise ConnectionError("the first time it fails")
    return given


async def think(request: CallRequest) -> Completion:
    """Answer after a fixed time."""
    await asyncio.sleep(MODEL_S)
    return Completion(text="ok", input_tokens=1, output_tokens=1, finish_reason="stop")
