"""The check of a NATS server ends when it is told to, and at nothing else."""

import asyncio
from pathlib import Path

import pytest

from hocket.kit.embedded import nats_write_check
from hocket.kit.embedded.errors import ServerStopped
from hocket.kit.embedded.nats_write_check import WriteCheck
from hocket.kit.process import task_stop

WAIT_S = 5


async def test_a_check_whose_client_swallows_a_cancellation_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def ask(self: WriteCheck) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # as nats-py does while it flushes

    async def restart() -> None:
        raise AssertionError("there is no write error")

    monkeypatch.setattr(nats_write_check, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(WriteCheck, "_found_write_error", ask)
    check = WriteCheck("nats", tmp_path, url=str, restart=restart)
    check.start()
    await asked.wait()
    monkeypatch.setattr(nats_write_check, "CHECK_EVERY_S", 60.0)
    monkeypatch.setattr(task_stop, "CANCEL_AGAIN_S", 0.001)
    await check.stop()


async def test_a_check_that_fails_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may die between its answer and the restart that the answer asks for."""
    restarted, tries = asyncio.Event(), 0

    async def found(_check: WriteCheck) -> str:
        return "write error"

    async def restart() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ServerStopped(server="nats")
        restarted.set()

    monkeypatch.setattr(nats_write_check, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(WriteCheck, "_found_write_error", found)
    store = tmp_path / "store"
    store.mkdir()
    check = WriteCheck("nats", store, url=str, restart=restart)
    check.start()
    async with asyncio.timeout(WAIT_S):
        await restarted.wait()
    await check.stop()
