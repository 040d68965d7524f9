"""When a server that should have said something is taken for silent.

A consumer whose leader was killed says nothing any more, and neither does its next leader where that is
the same server, started again: it has forgotten who asked. Only the heartbeats that do not come tell.
"""

import asyncio
from collections.abc import Callable

STOOD_STILL_S = 0.5
"""A process that looks so much later than it meant to stood still itself: what came meanwhile is read
first."""
LEAST_S = 0.001
"""Less than this is not waited for: added to the time of a loop it may be nothing at all."""


async def is_silent_before(
    event: asyncio.Event, silence_s: float, silent_s: Callable[[], float]
) -> bool:
    """Wait until `event` is set, and return False; or until the server has said nothing for `silence_s`,
    and return True. `silent_s` says how long it has said nothing so far."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + max(0.0, silence_s - silent_s())
    while True:
        try:
            async with asyncio.timeout_at(due_s):
                await event.wait()
            return False
        except TimeoutError:
            left_s = silence_s - silent_s()
        now_s = loop.time()
        if now_s - due_s > STOOD_STILL_S:
            left_s = max(left_s, STOOD_STILL_S)
        elif left_s < LEAST_S:
            return True
        due_s = now_s + left_s
