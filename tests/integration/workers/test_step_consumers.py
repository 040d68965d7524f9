"""A worker that looks for its consumers while nobody answers for their stream."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from hocket.kit.nats.bus import Bus
from hocket.schemas.access.nats_table import CONSUMERS_ASKED
from hocket.workers.runtime.transport.consumers import ensure_consumers
from support.access.plain_nats import plain_nats

BOUND_S = 60.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """A server without JetStream."""
    with plain_nats(tmp_path) as place:
        yield place


async def test_a_worker_does_not_end_where_nobody_says_whether_its_consumers_are_there(
    place: str,
) -> None:
    coordinator = await Bus.connect(f"nats://{place}", name="coordinator")
    worker = await Bus.connect(f"nats://worker:secret@{place}", name="worker")
    asked: list[str] = []

    async def answer(message: Msg) -> None:
        asked.append(message.subject)
        await message.respond(b"+OK")

    try:
        await coordinator.subscribe(f"{CONSUMERS_ASKED}.*", answer)
        async with asyncio.timeout(BOUND_S):
            await ensure_consumers(worker, "python")
    finally:
        await worker.close()
        await coordinator.close()
    assert asked == [f"{CONSUMERS_ASKED}.python"]
