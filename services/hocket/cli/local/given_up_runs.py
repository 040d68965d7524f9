"""Runs that are no longer wanted, and have to be cancelled.

The API does not know a run whose task still waits for a coordinator. Its cancellation is tried again
until the run is known: it would begin later, and go on. States of a run: left (its cancellation is tried
again), cancelled or ended, and told (nobody tries again, and a note says so).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from hocket.cli.terminal.console import notes
from hocket.cli.terminal.errors import may_appear, may_pass
from hocket.schemas.errors import HocketError

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
"""The times between two attempts to cancel a run; the last one is repeated."""
MAX_UNKNOWN = 64
"""After so many attempts, which take ten minutes, a run that the API does not know is left alone."""
LAST_S = 10.0
"""How long the end waits for runs that are not cancelled yet."""
ENDED = "run_not_open"
"""The code of the error of a run that has ended."""


class GivenUpRuns:
    """Cancels runs with `cancel`, which is given an id and raises the API's error."""

    def __init__(
        self,
        cancel: Callable[[str], Awaitable[object]],
        *,
        pauses_s: Sequence[float] = PAUSES_S,
        last_s: float = LAST_S,
    ) -> None:
        self._cancel = cancel
        self._pauses_s = pauses_s
        self._last_s = last_s
        self._left: dict[str, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()

    async def add(self, run_id: str) -> None:
        """Cancel a run: at once or, if that is not possible yet, as soon as it is."""
        error = await self._tried(run_id)
        if error is not None:
            self._left[run_id] = asyncio.create_task(self._keep_trying(run_id, error))

    async def close(self) -> None:
        """Wait a while for the runs that are left, and name those that may go on."""
        left = dict(self._left)
        if not left:
            return
        notes.print("waiting for runs that cannot be cancelled yet", style="dim")
        self._closing.set()
        await asyncio.wait(left.values(), timeout=self._last_s)
        for trying in left.values():
            trying.cancel()
        await asyncio.wait(left.values())
        for run_id in self._left:
            _tell(run_id, "it may begin later, and goes on then")

    async def _keep_trying(self, run_id: str, error: HocketError | None) -> None:
        """Try to cancel a run until nothing is left to try; `error` is that of the first attempt."""
        tries = unknown = 0
        while error is not None:
            unknown += may_appear(error, run_id)
            if unknown >= MAX_UNKNOWN:
                _tell(run_id, "the platform does not know it; if it begins later, it goes on then")
                break
            await self._pause(tries)
            tries += 1
            error = await self._tried(run_id)
        del self._left[run_id]

    async def _pause(self, tries: int) -> None:
        """Wait for the next attempt: less and less often, but at the end often again."""
        pause_s = self._pauses_s[min(tries, len(self._pauses_s) - 1)]
        if self._closing.is_set():
            await asyncio.sleep(self._pauses_s[0])
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    async def _tried(self, run_id: str) -> HocketError | None:
        """Try to cancel a run; return the error if another attempt may succeed."""
        try:
            await self._cancel(run_id)
        except HocketError as error:
            if may_pass(error) or may_appear(error, run_id):
                return error
            if error.info().code != ENDED:
                _tell(run_id, f"{error} It goes on")
        else:
            notes.print(f"run {run_id} is cancelled", style="dim")
        return None


def _tell(run_id: str, why: str) -> None:
    text = f"run {run_id} is not cancelled: {why}; cancel it with: hocket runs cancel {run_id}"
    notes.print(text, style="red", markup=False)
