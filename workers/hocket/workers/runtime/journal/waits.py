"""Waits that outlive an attempt: a handler's calls of other nodes, signals of its run, and long sleeps.

The attempt is suspended when the handler does nothing but wait: no journal operation, no model call and
no short sleep is in progress in any of its branches. Anything else that the handler does in tasks of its
own is cut off, as if the worker had died. Failures of branches that have ended well since are written
first: the next attempt would otherwise repeat what failed.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic_core import to_json

from hocket.schemas.messages import (
    MAX_WAITS,
    MAX_WAITS_BYTES,
    HandlerPlace,
    HandlerWait,
    NodeCall,
    Resumption,
    WaitEnded,
)
from hocket.workers.runtime.journal.errors import AttemptEnded, JournalFault, JournalMismatch
from hocket.workers.runtime.journal.journal import Journal, Place
from hocket.workers.runtime.journal.suspending import Suspension

QUIET_S = 0.05
"""How long a handler must do nothing but wait before its attempt is suspended: time for a concurrent
task to start something else."""
CALLS_QUIET_S = 0.005
"""The same if all its waits are calls, which end sooner."""
_NOTHING = Resumption()

Suspend = Callable[[Suspension], None]
"""Ends an attempt with a suspension."""


class Waits:
    """The waits of one attempt."""

    def __init__(
        self,
        resumption: Resumption | None,
        suspend: Suspend | None,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        """`suspend` is None if the platform does not suspend steps; `has_ended` tells whether the
        attempt's result is out."""
        resumption = resumption or _NOTHING
        self._ended = {one.key: one for one in resumption.ended}
        self._known = {one.key: one for one in resumption.waits}
        self._suspend = suspend
        self._has_ended = has_ended
        self._open: dict[tuple[str, int], HandlerWait] = {}
        self._futures: dict[tuple[str, int], asyncio.Future[None]] = {}
        """What each open wait waits for: nothing, unless it fails."""
        self._journal: Journal | None = None
        self._journaled: list[HandlerPlace] = []
        self._keeping: asyncio.Task[None] | None = None
        self._at_work = 0
        self._begun = 0

    @property
    def can_wait(self) -> bool:
        """Whether the attempt can be suspended."""
        return self._suspend is not None

    def use(self, journal: Journal) -> None:
        """Note the journal of the attempt, in which the outcomes of waits are kept."""
        self._journal = journal

    async def ended(
        self,
        place: Place,
        *,
        signal: str | None = None,
        until_ms: float | None = None,
        call: NodeCall | None = None,
    ) -> WaitEnded:
        """Return the outcome of a wait. If there is none yet, this never returns: the attempt is
        suspended. Raises JournalMismatch if an earlier attempt waited for something else here,
        AttemptEnded if the attempt has a result, and JournalFault if handled failures cannot be kept."""
        scope, ordinal = place.scope, place.ordinal
        wait = HandlerWait(
            scope=scope, ordinal=ordinal, signal=signal, until_ms=until_ms, call=call
        )
        ended = self._ended.get(wait.key)
        if ended is not None:
            _check_same(place, wait, ended)
            return ended
        known = self._known.get(wait.key)
        if known is not None:  # keep the first attempt's moment, and the call already in progress
            _check_same(place, wait, known)
            wait = known
        self._open[wait.key] = wait
        future = self._futures[wait.key] = asyncio.get_running_loop().create_future()
        self._begun += 1
        self._look()
        try:
            await future
        finally:
            del self._open[wait.key], self._futures[wait.key]
        raise AssertionError("a wait came to an end without an error")

    def digest_at(self, place: Place) -> str | None:
        """Return the digest of the call that an earlier attempt made at a place, or None."""
        key = place.scope, place.ordinal
        known = self._ended.get(key) or self._known.get(key)
        return None if known is None or known.call is None else known.call.digest

    def journaled(self, place: Place) -> None:
        """Note that the journal has the outcome of a wait, or will have it once the handler
        continues."""
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
            only_calls = all(one.call is not None for one in self._open.values())
            quiet_s = CALLS_QUIET_S if only_calls else QUIET_S
            asyncio.get_running_loop().call_later(quiet_s, self._suspend_if_quiet, self._begun)

    def _suspend_if_quiet(self, begun: int) -> None:
        if self._suspend is None or not self._is_quiet(begun):
            return
        if self._has_ended is not None and self._has_ended():
            self._fail(AttemptEnded())  # of tasks that the handler left behind
        elif self._journal is not None and any(one.is_settled for one in self._journal.noted):
            keeping = self._keep_failures(self._journal)
            self._keeping = asyncio.get_running_loop().create_task(keeping)
        else:
            self._suspend(Suspension(self._told(), tuple(filter(self._is_kept, self._journaled))))

    def _is_kept(self, place: HandlerPlace) -> bool:
        """Tell whether the journal has what happened at a place, rather than merely noted it."""
        noted = () if self._journal is None else self._journal.noted
        return all((one.entry.scope, one.entry.ordinal) != place.key for one in noted)

    def _is_quiet(self, begun: int) -> bool:
        return bool(self._open) and not self._at_work and begun == self._begun

    async def _keep_failures(self, journal: Journal) -> None:
        """Write the failures that branches have dealt with, and look again whether it is quiet."""
        with self.working():
            try:
                await journal.keep_failures(only_settled=True)
            except JournalFault as fault:
                self._fail(fault)

    def _fail(self, error: Exception) -> None:
        """End all open waits with an error."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)

    def _told(self) -> tuple[HandlerWait, ...]:
        """Return the waits to report. If there are too many, those already in progress come first, then
        as many others as fit into one result."""
        waits = sorted(self._open.values(), key=lambda wait: wait.key not in self._known)[
            :MAX_WAITS
        ]
        told: list[HandlerWait] = []
        left_bytes = MAX_WAITS_BYTES
        for wait in waits:
            if wait.call is not None and wait.call.input is not None:
                left_bytes -= len(to_json(wait.call.input))
            if told and left_bytes < 0:
                break
            told.append(wait)
        return tuple(told)


def _check_same(place: Place, wait: HandlerWait, known: HandlerWait | WaitEnded) -> None:
    """Raise JournalMismatch if an earlier attempt waited for something else here."""
    if _name(wait) != _name(known):
        raise JournalMismatch(
            asked=_name(wait), done=_name(known), ordinal=place.ordinal, where=place.where
        )
    if wait.call is not None and known.call is not None and wait.call.digest != known.call.digest:
        raise JournalMismatch(
            asked=_name(wait),
            done=f"{_name(known)} with another input",
            ordinal=place.ordinal,
            where=place.where,
        )


def _name(wait: HandlerWait | WaitEnded) -> str:
    if wait.call is not None:
        return f"call {wait.call.name}"
    return "sleep" if wait.signal is None else f"signal {wait.signal}"
