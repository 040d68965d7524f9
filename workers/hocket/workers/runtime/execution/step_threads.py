"""Threads for functions that are not async. A thread cannot be stopped: one that outlasts its step is
left behind. Its slot stays taken until it ends, but it does not keep the process alive.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError

IDLE_KEPT = 8
"""The most idle threads that are kept for the next function."""


class ThreadsBusy(HocketError):
    """All {limit} threads of this worker are taken, most of them by functions that did not end in
    time. Another worker may have one; make functions give up by themselves, with their own
    timeouts."""

    code = "threads_busy"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a function ended. An exception is kept as data, because futures cannot carry all of them."""

    value: Any = None
    error: BaseException | None = None


Work = tuple["Future[Outcome]", Callable[[], Any]]


class StepThreads:
    """At most `limit` daemon threads, created on demand."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._beside: StepThreads | None = None
        self._idle: list[SimpleQueue[Work | None]] = []
        self._waiting: deque[Work] = deque()
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """The number of threads."""
        return self._count

    @property
    def beside(self) -> "StepThreads":
        """As many threads again, for functions that handlers call: they have no slots of their own, and
        take no thread from those that have. Only the event loop's thread may ask for it."""
        if self._beside is None:
            self._beside = StepThreads(self.limit)
        return self._beside

    def start(self, call: Callable[[], Any], *, waits: bool = False) -> "Future[Outcome]":
        """Run a function in a thread. If none is left, raise ThreadsBusy, or have it wait for its
        turn."""
        future: Future[Outcome] = Future()
        with self._lock:
            queue = self._idle.pop() if self._idle else None
            if queue is None:
                if self._count >= self.limit:
                    if not waits:
                        raise ThreadsBusy(limit=self.limit)
                    self._waiting.append((future, call))
                    return future
                self._count += 1
        if queue is None:
            queue = SimpleQueue()
            queue.put((future, call))
            try:
                threading.Thread(
                    target=self._serve, args=(queue,), name="step", daemon=True
                ).start()
            except RuntimeError:  # the system has no more threads for now
                with self._lock:
                    self._count -= 1
                raise ThreadsBusy(limit=self.limit) from None
        else:
            queue.put((future, call))
        return future

    def close(self) -> None:
        """End the idle threads; the others end with the process."""
        if self._beside is not None:
            self._beside.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for queue in idle:
            queue.put(None)

    def _serve(self, queue: "SimpleQueue[Work | None]") -> None:
        while (work := queue.get()) is not None:
            future, call = work
            outcome = outcome_of(call) if future.set_running_or_notify_cancel() else None
            del work, call
            kept = self._back(queue)
            if outcome is not None:
                future.set_result(outcome)
            del future, outcome
            if not kept:
                return
        with self._lock:
            self._count -= 1

    def _back(self, queue: "SimpleQueue[Work | None]") -> bool:
        """Offer a thread for the next function; tell whether it was kept."""
        with self._lock:
            if self._waiting:
                queue.put(self._waiting.popleft())
                return True
            kept = len(self._idle) < IDLE_KEPT
            if kept:
                self._idle.append(queue)
            else:
                self._count -= 1
        return kept


def last_of(works: "Iterable[Future[Any]]") -> "Future[Any] | None":
    """Return a future that ends with the last of these that still run, or None if none does."""
    running = [work for work in works if not work.done()]
    if len(running) < 2:
        return running[0] if running else None
    last: Future[Any] = Future()
    left, lock = len(running), threading.Lock()

    def ended(_work: "Future[Any]") -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            last.set_result(None)

    for work in running:
        work.add_done_callback(ended)
    return last


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """Call a function, and return how it ended."""
    try:
        return Outcome(value=call())
    except BaseException as error:  # anything that it raises is the step's error
        return Outcome(error=error)
