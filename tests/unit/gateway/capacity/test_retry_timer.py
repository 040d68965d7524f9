"""The timer of what waits for capacity goes by the wall clock, which may be set while it waits."""

import asyncio

import pytest

from hocket.gateway.capacity import retry_timer

BOUND_S = 30.0


async def test_a_clock_that_is_set_forward_keeps_no_call_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_timer, "LOOK_S", 0.01)
    now_ms, fired = 0.0, asyncio.Event()
    timer = retry_timer.RetryTimer(lambda: now_ms, fired.set)
    timer.schedule(3_600_000.0)
    await asyncio.sleep(0.03)
    assert not fired.is_set()
    now_ms = 3_600_000.0
    async with asyncio.timeout(BOUND_S):
        await fired.wait()
