"""Threads for functions that are not async. A thread cannot be stopped: one that outlasts its step is
left behind. Its slot stays taken until it ends, but it does not keep the process alive.

Functions that handlers call wait for a thread if there are many of them. They are served in turn: one
attempt cannot take the threads of all others, nor can one tenant.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from hocket.schemas.errors import ErrorClass, HocketError

IDLE_KEPT = 8
"""The most idle threads that are kept for the next function."""
BESIDE_FACTOR = 4
"""Threads for functions that handlers call, for each thread of a step."""
MAX_BESIDE = 256
"""The most of them, unless there are more threads of steps."""
ATTEMPT_SHARE = 0.25
"""The part of these threads that one attempt may hold; at least one."""
TENANT_SHARE = 0.5
"""The part of them that the attempts of one tenant may hold; at least one."""


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


Holder = TypeVar("Holder")


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """The attempt for which functions run in threads; each attempt makes one of its own."""

    tenant: str


@dataclass(frozen=True, slots=True)
class _Work:
    future: "Future[Outcome]"
    call: Callable[[], Any]
    owner: Owner | None = None


_Line = OrderedDict["Future[Outcome]", _Work]
"""The work of one attempt that waits for a thread, in order; a cancelled one leaves it at once."""


class StepThreads:
    """At most `limit` daemon threads, created on demand."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._of_attempt = max(1, int(limit * ATTEMPT_SHARE))
        self._of_tenant = max(1, int(limit * TENANT_SHARE))
        self._beside: StepThreads | None = None
        self._idle: list[SimpleQueue[_Work | None]] = []
        self._lines: OrderedDict[Owner, _Line] = OrderedDict()
        self._held: Counter[Owner] = Counter()
        self._held_by_tenant: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """The number of threads."""
        return self._count

    @property
    def waiting(self) -> int:
        """The number of functions that wait for a thread."""
        with self._lock:
            return sum(map(len, self._lines.values()))

    @property
    def beside(self) -> "StepThreads":
        """More threads, for functions that handlers call: they have no slots of their own, and take no
        thread from those that have. One attempt may have as many of them as there are threads here, up
        to a quarter of MAX_BESIDE. Only the event loop's thread may ask for it."""
        if self._beside is None:
            limit = max(self.limit, min(BESIDE_FACTOR * self.limit, MAX_BESIDE))
            self._beside = StepThreads(limit)
        return self._beside

    def start(self, call: Callable[[], Any], *, owner: Owner | None = None) -> "Future[Outcome]":
        """Run a function in a thread. If none is left, raise ThreadsBusy; a function that has an owner
        waits for its turn instead, also if its attempt or its tenant has its share of the threads."""
        work = _Work(Future(), call, owner)
        with self._lock:
            if owner is not None and not self._may_start(owner):
                self._lines.setdefault(owner, OrderedDict())[work.future] = work
                queue, waits = None, True
            else:
                queue, waits = self._idle.pop() if self._idle else None, False
                if queue is None:
                    if self._count >= self.limit:
                        raise ThreadsBusy(limit=self.limit)
                    self._count += 1
                self._hold(owner)
        if waits and owner is not None:
            work.future.add_done_callback(partial(self._leave, owner))
        elif queue is not None:
            queue.put(work)
        else:
            self._start_thread(work)
        return work.future

    def _start_thread(self, work: _Work) -> None:
        queue: SimpleQueue[_Work | None] = SimpleQueue()
        queue.put(work)
        try:
            threading.Thread(target=self._serve, args=(queue,), name="step", daemon=True).start()
        except RuntimeError:  # the system has no more threads for now
            with self._lock:
                self._count -= 1
                self._give_back(work.owner)
            raise ThreadsBusy(limit=self.limit) from None

    def _may_start(self, owner: Owner) -> bool:
        """Tell whether a thread is free for an attempt that is within its share."""
        is_free = bool(self._idle) or self._count < self.limit
        return is_free and self._is_within_share(owner)

    def _is_within_share(self, owner: Owner) -> bool:
        return (
            self._held[owner] < self._of_attempt
            and self._held_by_tenant[owner.tenant] < self._of_tenant
        )

    def _hold(self, owner: Owner | None) -> None:
        if owner is not None:
            self._held[owner] += 1
            self._held_by_tenant[owner.tenant] += 1

    def _give_back(self, owner: Owner | None) -> None:
        if owner is not None:
            _count_down(self._held, owner)
            _count_down(self._held_by_tenant, owner.tenant)

    def _next(self) -> _Work | None:
        """Take the next work from the lines, whose attempts are served in turn."""
        for owner, line in self._lines.items():
            if self._is_within_share(owner):
                _, work = line.popitem(last=False)
                if line:
                    self._lines.move_to_end(owner)
                else:
                    del self._lines[owner]
                self._hold(owner)
                return work
        return None

    def _leave(self, owner: Owner, future: "Future[Outcome]") -> None:
        """Take work that was cancelled out of its line."""
        with self._lock:
            line = self._lines.get(owner)
            if line is not None and line.pop(future, None) is not None and not line:
                del self._lines[owner]

    def close(self) -> None:
        """End the idle threads; the others end with the process."""
        if self._beside is not None:
            self._beside.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for queue in idle:
            queue.put(None)

    def _serve(self, queue: "SimpleQueue[_Work | None]") -> None:
        while (work := queue.get()) is not None:
            future, owner = work.future, work.owner
            outcome = outcome_of(work.call) if future.set_running_or_notify_cancel() else None
            del work
            kept = self._back(queue, owner)
            if outcome is not None:
                future.set_result(outcome)
            del future, owner, outcome
            if not kept:
                return
        with self._lock:
            self._count -= 1

    def _back(self, queue: "SimpleQueue[_Work | None]", owner: Owner | None) -> bool:
        """Offer a thread for the next function; tell whether it was kept."""
        with self._lock:
            self._give_back(owner)
            work = self._next()
            if work is not None:
                queue.put(work)
                return True
            kept = len(self._idle) < IDLE_KEPT
            if kept:
                self._idle.append(queue)
            else:
                self._count -= 1
        return kept


def _count_down(held: "Counter[Holder]", holder: Holder) -> None:
    held[holder] -= 1
    if not held[holder]:
        del held[holder]


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
