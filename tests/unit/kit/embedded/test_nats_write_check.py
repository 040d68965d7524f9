"""The check of a NATS server ends when it is told to."""

import asyncio
from pathlib import Path

import pytest

from hocket.kit.embedded import nats_write_check
from hocket.kit.embedded.nats_write_check import WriteCheck
from hocket.kit.process import task_stop


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
