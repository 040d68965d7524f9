"""Places for the queries of a Postgres database, each kept until the server has ended its statement.

A server looks at the clock between two rows and in most functions, but `strpos`, `replace`, LIKE and
others go through long values without a look. Such a statement outlasts its timeout, its cancellation and
its connection. If its place were free at once, the next query would come on top of it, until the server
has no connections left. So the caller goes on, and the place is kept while the server is asked, over a
connection of its own, whether the statement is still there.

A place is never lost for good. Where nothing is found out (the server does not answer, its other
connections are taken, another server of several answers), it is given back after UNSURE_S; where the
login may not see what runs, after the first look. A server that is not there has no statements.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from time import monotonic
from typing import Final, TypeVar

import structlog
from sqlalchemy.exc import TimeoutError as PoolTimeout

from hocket.workers.sql.errors import SqlUnavailable

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 30.0
"""The pause between two looks at the server doubles, from the first to this one."""
UNSURE_S: Final = 120.0
"""After so long without a look that told something, a place is given back."""
LOGGED_FROM_LOOK: Final = 6
"""The look, after some 3 s, from which on a statement that still works is logged."""
CLOSE_S: Final = 3.0
"""How long the connections have, when the places close, to have the server stop their statements."""

log = structlog.get_logger()
T = TypeVar("T")


class State(Enum):
    """What the server tells about a statement."""

    WORKING = auto()
    ENDED = auto()
    UNSURE = auto()
    HIDDEN = auto()
    """The login may not see statements, so that no look will tell."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the server: the process that runs it, when its transaction began, and when its
    server was started (as seconds since 1970)."""

    pid: int
    begun: str
    server: str


class Reading:
    """A query while it reads; `left` is its statement if the server may still work on it."""

    def __init__(self) -> None:
        self.left: Statement | None = None
        self.is_given_up = False
        """Whether its caller was cancelled, and with that its task."""


class Places:
    """Lets `size` queries read at once; the others wait for up to `timeout_s`. `look` tells the states
    of several statements, in their order."""

    def __init__(
        self,
        database: str,
        look: Callable[[Sequence[Statement]], Awaitable[Sequence[State]]],
        *,
        size: int,
        timeout_s: float,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._look = look
        self._size = size
        self._timeout_s = timeout_s
        self._pause = pause
        self._clock = clock
        self._free = asyncio.Semaphore(size)
        self._looking = asyncio.Lock()
        self._asked: dict[asyncio.Future[State], Statement] = {}
        self._tasks: dict[asyncio.Task[None], Callable[[BaseException], None]] = {}
        self._kept: set[asyncio.Task[None] | None] = set()
        self._is_hidden = False
        self._is_closed = False

    async def read(self, work: Callable[[Reading], Awaitable[T]]) -> T:
        """Return what `work` returns. A cancelled caller, and one whose work fails, does not wait for
        its statement to end; its place does."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        reading = Reading()
        task = asyncio.create_task(self._read(work, reading, answer))
        self._tasks[task] = partial(_fail, answer)
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _ended: answer.cancel())  # of one that was cancelled early
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():  # it came in the same turn
                answer.exception()  # retrieved, because nobody awaits it
            elif not task.cancelling():  # else the event loop ends, and it is being stopped
                reading.is_given_up = True
                task.cancel()
            raise

    async def close(self) -> None:
        """Give up every query and every place. What runs has CLOSE_S to be stopped in the server."""
        self._is_closed = True
        tasks = dict(self._tasks)
        for task, fail in tasks.items():
            fail(self._closing())
            is_stopping = task.cancelling() and task not in self._kept
            if not is_stopping:  # a second cancellation would break that off
                task.cancel()
        if tasks:
            _ended, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self,
        work: Callable[[Reading], Awaitable[T]],
        reading: Reading,
        answer: "asyncio.Future[T]",
    ) -> None:
        try:
            await self._take()
        except PoolTimeout as error:
            _fail(answer, error)
            return
        try:
            try:
                found = await work(reading)
            except (Exception, asyncio.CancelledError) as error:
                _fail(answer, error)
            else:
                if not answer.done():
                    answer.set_result(found)
            if reading.left is not None and not self._is_stopped(reading):
                await self._ended(reading.left)
        finally:
            self._free.release()

    def _is_stopped(self, reading: Reading) -> bool:
        """Whether the task that runs was cancelled by another than its caller: the worker or its event
        loop ends."""
        task = asyncio.current_task()
        assert task is not None
        return self._is_closed or task.cancelling() > reading.is_given_up

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise PoolTimeout(
                f"none of the {self._size} connections was free for {self._timeout_s:g} s; "
                f"{len(self._kept)} are kept for statements that were given up, but that the server "
                "has not ended"
            ) from None

    async def _ended(self, statement: Statement) -> None:
        """Wait until the server has ended a statement, or has not told for long."""
        task = asyncio.current_task()
        self._kept.add(task)
        is_logged = False
        pause_s, told_s = FIRST_PAUSE_S, self._clock()
        try:
            for look in count(1):
                state = await self._state(statement)
                if state is State.WORKING:
                    told_s = self._clock()
                    if look >= LOGGED_FROM_LOOK and not is_logged:
                        is_logged = True
                        self._log("sql_statement_goes_on", statement)
                elif self._is_over(state, statement, told_s):
                    break
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
        finally:
            self._kept.discard(task)
        if is_logged and state is State.ENDED:
            self._log("sql_statement_ended", statement)

    def _is_over(self, state: State, statement: Statement, told_s: float) -> bool:
        """Whether a statement has ended, or nothing more will be told; log what was not told."""
        if state is State.UNSURE:
            if self._clock() - told_s < UNSURE_S:
                return False
            self._log("sql_statement_not_found_out", statement)
        if state is State.HIDDEN and not self._is_hidden:
            self._is_hidden = True
            log.warning("sql_statements_not_visible", database=self._database)
        return True

    async def _state(self, statement: Statement) -> State:
        """Look at a statement; those that wait meanwhile share the next look."""
        told: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._asked[told] = statement
        try:
            async with self._looking:
                if not told.done():
                    asked = {future: of for future, of in self._asked.items() if not future.done()}
                    states = await self._look(list(asked.values()))
                    for future, state in zip(asked, states, strict=True):
                        future.set_result(state)
            return told.result()
        finally:
            del self._asked[told]

    def _log(self, event: str, statement: Statement) -> None:
        log.warning(event, database=self._database, pid=statement.pid, kept=len(self._kept))

    def _closing(self) -> SqlUnavailable:
        return SqlUnavailable(
            database=self._database,
            sqlstate="none",
            reason="the worker closes",
            component=f"sql:{self._database}",
        )


def _fail(answer: "asyncio.Future[T]", error: BaseException) -> None:
    """Hand an error to the caller, if it still waits."""
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(error)
