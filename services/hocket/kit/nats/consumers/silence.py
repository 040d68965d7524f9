"""Decides when a server that should have said something counts as silent.

A consumer whose leader was killed falls silent, and stays so if its next leader is the same server,
restarted: it has forgotten who asked. Only the missing heartbeats show this.
"""

import asyncio
from collections.abc import Callable

STOOD_STILL_S = 0.5
"""A process that wakes up this much later than planned was stalled itself: it first reads what arrived
in the meantime."""
LEAST_S = 0.001
"""Shorter waits are skipped: added to the loop's time, they may round to nothing."""


async def is_silent_before(
    event: asyncio.Event, silence_s: float, silent_s: Callable[[], float]
) -> bool:
    """Wait until `event` is set, and return False, or until the server has been silent for `silence_s`,
    and return True. `silent_s` returns how long it has been silent so far."""
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
