"""The API is asked for the end of a run until it tells it, whatever it answers in between."""

import asyncio
from typing import Any

import pytest

from hocket.cli.remote import task
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas.errors import ErrorInfo

WAIT_S = 20


async def test_an_api_that_refuses_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "LOOK_INTERVAL_S", 0.0)
    refusals = [ApiRefused(ErrorInfo(code="too_many_requests", message="Later."))]

    def look() -> dict[str, Any] | None:
        if refusals:
            raise refusals.pop()
        return {"status": "succeeded"}

    end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(WAIT_S):
        await task._keep_looking(look, end)

    assert await end == {"status": "succeeded"}
