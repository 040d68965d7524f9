"""Work on large requests and replies, in a thread beside the event loop, which it would hold up for
seconds.

There is one such thread. More would not be faster, because only one at a time computes, and they would
take the threads that the rest of the process shares. Work waits for it in its caller, so that nothing
is left of work whose caller has gone.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="large requests and replies")
_turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
"""The lock of each event loop for the work that the thread does for it."""


async def beside(work: Callable[[], T]) -> T:
    """Return what a function returns, or raise what it raises.

    If the caller is cancelled, work that has not begun is never done; work that has goes on to its end.
    """
    return await asyncio.shield(await begun(work))


async def begun(work: Callable[[], T]) -> "asyncio.Task[T]":
    """Begin work once the work before it has ended, and return the task that ends with it. It is to be
    shielded, because a task that is cancelled ends before the thread does."""
    turn = _turn_of(asyncio.get_running_loop())
    await turn.acquire()
    working = asyncio.create_task(_done(work), name="large work")
    working.add_done_callback(lambda done: _end(turn, done))
    return working


def _turn_of(loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
    if loop not in _turns:
        for ended in [one for one in tuple(_turns) if one.is_closed()]:
            _turns.pop(ended, None)
        _turns[loop] = asyncio.Lock()
    return _turns[loop]


async def _done(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


def _end(turn: asyncio.Lock, done: "asyncio.Task[T]") -> None:
    turn.release()
    if not done.cancelled():
        done.exception()  # it may have been raised to nobody
