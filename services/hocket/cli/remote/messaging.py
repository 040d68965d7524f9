"""The connection of a command to NATS. A person waits for it, so it gives up sooner than a process of
the platform, which may be started before NATS."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hocket.kit.nats.bus import Bus

CONNECT_TIMEOUT_S = 5.0


@asynccontextmanager
async def connected_bus(nats_url: str, name: str) -> AsyncIterator[Bus]:
    """Connect to NATS within CONNECT_TIMEOUT_S, or raise BusUnavailable."""
    bus = await Bus.connect(nats_url, name=name, timeout_s=CONNECT_TIMEOUT_S)
    try:
        yield bus
    finally:
        await bus.close()
