"""Handlers that wait for signals, imported by worker processes; they record what they do in a file."""

import asyncio
import os
from pathlib import Path
from typing import Any

from hocket.worker import Context, SignalTimedOut, StepFailed

DONE = "WAITING_HANDLERS_DONE"


async def order(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Charge an order, wait until it is paid, and ship it."""
    await context.step("charge", _note, f"{given['v']} charged")
    paid = await context.wait_for_signal("paid")
    await context.step("ship", _note, f"{given['v']} shipped")
    return {"paid": paid, "attempt": context.step.attempt}


async def ask(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Wait for an answer for a limited time."""
    try:
        answer = await context.wait_for_signal("answer", timeout_s=given["timeout_s"])
    except SignalTimedOut:
        answer = "none"
    return {"answer": answer}


async def nap(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Sleep for longer than a worker is occupied."""
    await context.step("lie down", _note, f"{given['v']} lay down")
    await context.sleep(given["seconds"])
    return {"attempt": context.step.attempt}


def _note(line: str) -> None:
    file = os.open(Path(os.environ[DONE]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def buy(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Charge an order, and call nodes, one after another and in parallel."""
    await context.step("charge", _note, f"{given['v']} charged")
    stored = await context.call_node(
        "store", {"item": given["v"], "wait_s": given.get("wait_s", 0)}
    )
    parts = await asyncio.gather(*(context.call_node("store", {"item": n}) for n in range(3)))
    await context.step("ship", _note, f"{given['v']} shipped")
    return {"stored": stored, "parts": parts, "attempt": context.step.attempt}


async def store(given: dict[str, Any]) -> dict[str, Any]:
    """Store an item, and say so."""
    await asyncio.sleep(given.get("wait_s", 0))
    _note(f"{given['item']} stored")
    return {"item": given["item"]}


async def ask_other(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Call a pipeline; return its output, or how it failed."""
    try:
        return {"gave": await context.call_node("other", given)}
    except StepFailed as failed:
        return {"failed": failed.error.code}
