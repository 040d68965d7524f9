"""The promise of EVENTS: the end of a run stands there once, whoever owns its partition later."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest

from hocket.coordinator.core.run.ends import notification_watermark
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from support.coordinator_rig import BOUND_S, Rig

WINDOW_S = 0.1
"""How long the stream knows a repeat: the least that NATS takes."""
LOOK_S = 0.02
KNOWN = "SELECT told_at > $1 FROM hocket.partition"


@pytest.fixture
async def rig(bus: Bus, database_url: str) -> AsyncIterator[Rig]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        rig = Rig(bus, pool)
        await rig.open()
        yield rig


async def test_an_end_stands_once_though_owners_change_when_the_stream_forgot_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLOCKS_MS", "SETTLED_MS"):
        monkeypatch.setattr(notification_watermark, name, 10.0)
    events = (await rig.bus.js.stream_info(subjects.EVENTS)).config
    events.duplicate_window = WINDOW_S
    await rig.bus.js.update_stream(events)
    async with rig.coordinator("one"):
        end = await rig.ends("acme", "first")
        await rig.ends("default", "later")  # so that the log is known to be applied beyond
        finished_at = datetime.fromtimestamp(end["finished_at_ms"] / 1_000, UTC)
        async with asyncio.timeout(BOUND_S):
            while not await rig.pool.fetchval(KNOWN, finished_at):  # noqa: ASYNC110 (a row)
                await asyncio.sleep(LOOK_S)
    for owner in ("two", "three"):
        async with rig.coordinator(owner):
            await rig.ends("default", owner)

    subject = subjects.event("acme", "p", "run-finished")
    state = (await rig.bus.js.stream_info(subjects.EVENTS, subjects_filter=subject)).state
    assert state.subjects == {subject: 1}
