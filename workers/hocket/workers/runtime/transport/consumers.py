"""How a worker gets the durable pull consumers of STEPS: it makes them if it may, and otherwise asks a
coordinator (`kit/nats/consumers/step_consumers.py`)."""

import asyncio

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import ACK_WAIT_S, ask_for_consumers, make_consumers
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.repeated_requests import api_repeated
from hocket.schemas import subjects

API_TIMEOUT_MS = 10_000.0
_NS = 1_000_000_000

__all__ = ["ACK_WAIT_S", "consumer_name", "ensure_consumers"]


def consumer_name(pool: str, lane: str) -> str:
    """Return the name of the consumer for a pool's lane."""
    return subjects.step_consumer(subjects.pool_token(pool), lane)


async def ensure_consumers(bus: Bus, pool: str, ack_wait_s: float = ACK_WAIT_S) -> None:
    """Make sure that a pool's consumers exist. A worker that may not make them waits for a coordinator
    to do it."""
    token = subjects.pool_token(pool)
    if bus.identity.makes_consumers:
        await make_consumers(bus, token, ack_wait_s)
        return
    if bus.identity.is_guest:  # it may not see consumers
        await ask_for_consumers(bus, token, ack_wait_s)
        return
    names = [consumer_name(pool, lane) for lane in subjects.LANES]
    if not all(await asyncio.gather(*(_is_there(bus, name, ack_wait_s) for name in names))):
        await ask_for_consumers(bus, token, ack_wait_s)


async def _is_there(bus: Bus, name: str, ack_wait_s: float) -> bool:
    subject = f"CONSUMER.INFO.{subjects.STEPS}.{name}"
    try:
        found = await api_repeated(bus, subject, {}, timeout_ms=API_TIMEOUT_MS)
    except BusUnavailable:  # the cluster has had no leader for a long time
        return False
    wait_ns: int = found.get("config", {}).get("ack_wait", 0)
    return wait_ns == int(ack_wait_s * _NS)
