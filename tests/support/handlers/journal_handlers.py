"""Handlers of `journal_rig.py`, imported by the worker processes; each call is recorded in a journal."""

import asyncio
import os
from pathlib import Path
from typing import Any

FOLDER = "JOURNAL_FOLDER"


async def count(given: dict[str, Any]) -> dict[str, Any]:
    """Write the call into the journal and return the input."""
    _note(given)
    return {"v": given["v"]}


async def picky(given: dict[str, Any]) -> dict[str, Any]:
    """Write the call into the journal, and fail as long as there is a file that forbids this value."""
    _note(given)
    if (Path(os.environ[FOLDER]) / f"bad-{given['v']}").exists():
        raise ValueError(f"no {given['v']} today")
    return {"v": given["v"]}


async def held(given: dict[str, Any]) -> None:
    """Write the call into the journal and wait forever; record when it is stopped."""
    _note(given)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _note({"v": f"{given['v']}-stopped"})
        raise


async def gated(given: dict[str, Any]) -> dict[str, Any]:
    """Write the call into the journal, then wait until the gate's file exists."""
    _note(given)
    gate = Path(os.environ[FOLDER]) / f"gate-{given['v']}"
    while not gate.exists():  # noqa: ASYNC110 (a file has no event)
        await asyncio.sleep(0.01)
    if gate.read_text() == "fail":
        gate.write_text("pass")
        raise ValueError("told to fail")
    return {"v": given["v"]}


def _note(given: dict[str, Any]) -> None:
    line = f"{given['v']}\n".encode()
    journal = os.open(Path(os.environ[FOLDER]) / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line)
    os.close(journal)
