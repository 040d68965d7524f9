"""Requests to JetStream while a cluster may be without a leader.

A request sent before a leader was elected is never answered. Waiting for its full timeout wastes seconds
after the election; giving up early fails where servers are slow. So the same request is sent repeatedly
and the first answer counts. The request must therefore be idempotent.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks

AGAIN_S = 0.5
"""Time between repetitions of a request."""


async def api_repeated(
    bus: Bus, subject: str, request: Mapping[str, Any], *, timeout_ms: float
) -> Any:
    """Call JetStream's API, repeating the request every AGAIN_S, and return the first answer. Raises
    BusUnavailable if none arrives within `timeout_ms`, or if nobody listens."""
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
