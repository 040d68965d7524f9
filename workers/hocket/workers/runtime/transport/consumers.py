"""The durable pull consumers of STEPS, one per pool (a node type, or a queue of it) and lane, shared by
all workers."""

import asyncio

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects

ACK_WAIT_S = 10.0
"""A step whose worker says nothing for so long goes to another one."""
MAX_DELIVERIES = 20
"""A step delivered so often is dead-lettered. Also counts what a dying worker held beside it: a
step that ends its worker is found long before, on probation."""
MAX_ACK_PENDING = 65_536
"""Steps in the hands of all workers together, per node type and lane."""
MAX_WAITING = 8_192
"""Pull requests that stand at the server, per node type and lane."""


def consumer_name(pool: str, lane: str) -> str:
    """Return the name of the consumer of a pool's lane."""
    return f"step-{subjects.pool_token(pool)}-{lane}"


async def ensure_consumers(bus: Bus, node_type: str, ack_wait_s: float = ACK_WAIT_S) -> None:
    """Create the consumers of a node type, or bring them up to date."""
    await asyncio.gather(
        *(
            bus.js.add_consumer(subjects.STEPS, _config(node_type, lane, ack_wait_s))
            for lane in subjects.LANES
        )
    )


def _config(node_type: str, lane: str, ack_wait_s: float) -> ConsumerConfig:
    name = consumer_name(node_type, lane)
    return ConsumerConfig(
        name=name,
        durable_name=name,
        filter_subject=subjects.step(node_type, lane),
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=-1,  # workers count: what the server gave up would only be told on a subject
        max_ack_pending=MAX_ACK_PENDING,
        max_waiting=MAX_WAITING,
    )
