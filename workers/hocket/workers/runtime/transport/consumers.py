"""The durable pull consumers of STEPS, as a worker comes by them: it makes them where it may, and asks a
coordinator otherwise (`kit/nats/consumers/step_consumers.py`)."""

import asyncio

from nats.errors import Error as NatsError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import ACK_WAIT_S, ask_for_consumers, make_consumers
from hocket.schemas import subjects

__all__ = ["ACK_WAIT_S", "consumer_name", "ensure_consumers"]


def consumer_name(pool: str, lane: str) -> str:
    """Return the name of the consumer of a pool's lane."""
    return subjects.step_consumer(subjects.pool_token(pool), lane)


async def ensure_consumers(bus: Bus, pool: str, ack_wait_s: float = ACK_WAIT_S) -> None:
    """See to it that the consumers of a pool are there. Who makes none waits for a coordinator where
    they are not."""
    token = subjects.pool_token(pool)
    if bus.identity.makes_consumers:
        await make_consumers(bus, token, ack_wait_s)
        return
    if bus.identity.is_guest:  # to whom consumers are not shown
        await ask_for_consumers(bus, token, ack_wait_s)
        return
    names = [consumer_name(pool, lane) for lane in subjects.LANES]
    if not all(await asyncio.gather(*(_is_there(bus, name, ack_wait_s) for name in names))):
        await ask_for_consumers(bus, token, ack_wait_s)


async def _is_there(bus: Bus, name: str, ack_wait_s: float) -> bool:
    try:
        found = await bus.js.consumer_info(subjects.STEPS, name)
    except NatsError:  # not found; or a cluster has no leader yet, and nobody answers
        return False
    return bool(found.config.ack_wait == ack_wait_s)
