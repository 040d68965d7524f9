"""Asking JetStream while a cluster may be without a leader.

Nobody answers what was asked before a leader was elected. Who waits for that answer until his time is up
loses seconds after the election; who gives up early asks in vain where servers are slow. So the same
question is asked again and again, and the first answer counts: it must be one that may be asked twice.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks

AGAIN_S = 0.5
"""How soon the question is asked again."""


async def api_repeated(
    bus: Bus, subject: str, request: Mapping[str, Any], *, timeout_ms: float
) -> Any:
    """Call JetStream's API, every AGAIN_S again, and return the first answer; or raise BusUnavailable
    where none came in `timeout_ms`, or nobody listens."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_ms / 1000
    asked: set[asyncio.Task[Any]] = set()
    try:
        while True:
            left_s = until_s - loop.time()
            if left_s > 0:
                asking = bus.api(subject, request, timeout_ms=1000 * left_s)
                asked.add(asyncio.create_task(asking, name=f"ask {subject}"))
            last = left_s <= AGAIN_S
            done, asked = await asyncio.wait(
                asked,
                timeout=None if last else AGAIN_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            answered = [task for task in done if task.exception() is None]
            if done:
                return (answered or list(done))[0].result()
    finally:
        await stop_tasks(asked)
