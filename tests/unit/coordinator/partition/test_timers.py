"""Timers go by the wall clock, which may be set while they wait."""

import asyncio
import time

import pytest

from hocket.coordinator.partition import timers
from hocket.kit.process import clock

HOUR_S = 3_600.0
BOUND_S = 30.0


async def test_a_clock_that_is_set_forward_keeps_no_timer_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "LOOK_S", 0.01)
    behind_s = HOUR_S
    fired: asyncio.Future[tuple[str, float]] = asyncio.get_running_loop().create_future()
    with clock.source(lambda: time.time() - behind_s, time.monotonic):
        due_ms = (time.time() + 0.01) * 1000
        one = timers.Timers(
            lambda run_id, at_ms: fired.set_result((run_id, at_ms)), is_wanted=lambda _: True
        )
        one.arm("r1", due_ms)
        behind_s = 0.0
        async with asyncio.timeout(BOUND_S):
            assert await fired == ("r1", due_ms)
        one.clear()
