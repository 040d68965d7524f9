"""Parked runs whose time has come are woken, however long the log cannot be reached."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.wake_ups import WakeUps

DUE_MS = 1_000.0
"""Long ago."""


class Rig:
    """Wake-ups of two runs that Postgres has as parked; `posts` are not acknowledged by themselves."""

    def __init__(self) -> None:
        self.posts: list[asyncio.Future[None]] = []
        self.posted: list[str] = []
        self.fails = False
        services = SimpleNamespace(store=self, load=None, metrics=None)
        tenure = SimpleNamespace(partition=0, over=False, epoch=1)
        context: Any = SimpleNamespace(services=services, tenure=tenure, runs=Runs(), posts=self)
        self.wake_ups = WakeUps(context)

    async def parked(self, partition: int, until_ms: float, limit: int) -> list[tuple[str, float]]:
        return [("r1", DUE_MS), ("r2", DUE_MS)]

    def post_to_run(self, event: Any, msg_id: str) -> "asyncio.Future[None]":
        self.posted.append(event.run_id)
        if self.fails:
            raise ConnectionError("closed")
        post: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.posts.append(post)
        return post

    async def look(self) -> None:
        """Ask once for runs whose time has come, and let their timers fire."""
        await self.wake_ups.wake_parked()
        if self.wake_ups._timers._heap:
            self.wake_ups._timers._due()


async def test_a_run_is_woken_once_until_the_log_has_its_timer() -> None:
    rig = Rig()
    for _ in range(3):
        await rig.look()
    assert rig.posted == ["r1", "r2"]
    rig.posts[0].set_result(None)
    rig.posts[1].set_exception(ConnectionError("closed"))
    await asyncio.sleep(0)  # their callbacks
    await rig.look()
    assert rig.posted == ["r1", "r2"] * 2
    rig.wake_ups.clear()


async def test_a_run_whose_timer_could_not_be_posted_is_woken_again() -> None:
    rig = Rig()
    rig.fails = True
    with pytest.raises(ConnectionError):
        await rig.look()
    assert rig.wake_ups._waking == {"r2"}
    rig.wake_ups.clear()
