"""What a handler waits for, beyond the life of an attempt: signals of its run, and moments.

The attempt is suspended when the handler does nothing but wait: no call of the journal, no model call
and no short sleep is under way in any of its branches. What it does besides, in tasks of its own, is
ended with it, as by a worker that dies.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hocket.schemas.messages import HandlerPlace, HandlerWait, Resumption, WaitEnded
from hocket.workers.runtime.journal.errors import JournalMismatch
from hocket.workers.runtime.journal.journal import Place
from hocket.workers.runtime.journal.suspending import Suspension

QUIET_S = 0.05
"""A handler that only waits has got so long to begin something else, side by side."""


Suspend = Callable[[Suspension], None]
"""Ends an attempt so."""


class Waits:
    """Those of one attempt."""

    def __init__(self, resumption: Resumption | None, suspend: Suspend | None) -> None:
        """`suspend` is None where the platform does not suspend steps."""
        resumption = resumption or Resumption()
        self._ended = {one.key: one for one in resumption.ended}
        self._known = {one.key: one for one in resumption.waits}
        self._suspend = suspend
        self._open: dict[tuple[str, int], HandlerWait] = {}
        self._journaled: list[HandlerPlace] = []
        self._at_work = 0
        self._begun = 0

    @property
    def can_wait(self) -> bool:
        """Whether the attempt can be suspended."""
        return self._suspend is not None

    async def ended(
        self, place: Place, *, signal: str | None = None, until_ms: float | None = None
    ) -> WaitEnded:
        """Return what came of a wait; where nothing has, the attempt is suspended."""
        scope, ordinal = place.scope, place.ordinal
        wait = HandlerWait(scope=scope, ordinal=ordinal, signal=signal, until_ms=until_ms)
        ended = self._ended.get(wait.key)
        if ended is not None:
            _check_same(place, wait, ended)
            return ended
        self._open[wait.key] = self._known.get(
            wait.key, wait
        )  # its moment is that of the first time
        self._begun += 1
        self._look()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            del self._open[wait.key]
        raise AssertionError("a future that nobody has was set")

    def journaled(self, place: Place) -> None:
        """Note that the journal has what came of a wait."""
        known = HandlerPlace(scope=place.scope, ordinal=place.ordinal)
        if known.key in self._ended:
            self._journaled.append(known)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep the attempt from being suspended."""
        self._at_work += 1
        self._begun += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._look()

    def _look(self) -> None:
        if self._open and not self._at_work:
            asyncio.get_running_loop().call_later(QUIET_S, self._suspend_if_quiet, self._begun)

    def _suspend_if_quiet(self, begun: int) -> None:
        if self._suspend and self._open and not self._at_work and begun == self._begun:
            self._suspend(Suspension(tuple(self._open.values()), tuple(self._journaled)))


def _check_same(place: Place, wait: HandlerWait, ended: WaitEnded) -> None:
    """Raise JournalMismatch where an earlier attempt waited for something else here."""
    if wait.signal != ended.signal:
        raise JournalMismatch(
            asked=_told(wait.signal),
            done=_told(ended.signal),
            ordinal=place.ordinal,
            where=place.where,
        )


def _told(signal: str | None) -> str:
    return "sleep" if signal is None else f"signal {signal}"
