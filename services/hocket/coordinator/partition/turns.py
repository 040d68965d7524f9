"""Turns of the event loop during long work: a coordinator that does nothing else for a while gives no
sign of life, and the others take it for dead."""

import asyncio

WORK_OF_TURN = 200
"""How much is done at a time: steps that are read back or handed out, 3 to 10 ms."""
WORK_OF_RUN = 10
"""What a run counts besides its steps."""


class Turns:
    """Lets everything else have its turn after so much work. Nothing that is half done may be left
    where `after` is awaited."""

    def __init__(self) -> None:
        self._done = 0

    async def after(self, work: int) -> None:
        """Note work that is done; wait for the next turn if it was enough for this one."""
        self._done += work
        if self._done >= WORK_OF_TURN:
            self._done = 0
            await asyncio.sleep(0)
