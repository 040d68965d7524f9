"""Signal handlers of an event loop that forked children do not take over.

A forked child has its parent's handlers, and the socket over which signals wake the parent's loop: with
`add_signal_handler` alone, the parent stops when its child is told to, and the child goes on. So a child
begins with the handlers of the system and without the socket. Until then it keeps signals waiting.

Only a first SIGINT does not end it: Ctrl-C reaches a process and its children, and the work of these is
part of what their parent finishes.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

_handled: dict[int, object] = {}
"""What the system calls on signals for which a loop of this process has handlers."""
_before = threading.local()
_is_registered = False


def on_signal(number: int, call: Callable[..., object], *given: Any) -> None:
    """Call a function in the running loop when this process, not a forked child, gets a signal."""
    global _is_registered
    asyncio.get_running_loop().add_signal_handler(number, call, *given)
    _handled[number] = signal.getsignal(number)
    if not _is_registered:  # only the main thread comes here
        os.register_at_fork(
            before=_keep_waiting, after_in_parent=_go_on, after_in_child=_begin_anew
        )
        _is_registered = True


def _keep_waiting() -> None:
    _before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, tuple(_handled))


def _go_on() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before.mask)


def _begin_anew() -> None:
    ours = [number for number, called in _handled.items() if signal.getsignal(number) is called]
    if _handled:
        signal.set_wakeup_fd(-1)
    _handled.clear()
    for number in ours:
        signal.signal(number, _once_more if number == signal.SIGINT else signal.SIG_DFL)
    _go_on()


def _once_more(number: int, _frame: object) -> None:
    """Be interrupted by the next SIGINT. A function, because a program that the child starts would
    ignore what it ignores."""
    signal.signal(number, signal.default_int_handler)
