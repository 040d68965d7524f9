"""Exact in-flight counters per backend, and the calls that wait for a place.

A call that no backend can take now waits here until a place is given back, a resting backend may be
asked again, or its deadline comes; whoever has the earliest deadline is woken first. The waiting room
is bounded. All of it runs on one event loop, so that no count is ever off.
"""

import asyncio
import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

MAX_WAITING = 1_024


class Places:
    """Who is being served where, and who waits."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._in_flight: Counter[str] = Counter()
        self._waiting: list[tuple[float, int, frozenset[str], asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Calls being served, by backend name."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether nobody else may wait."""
        return len(self._waiting) >= self._max_waiting

    @contextmanager
    def held(self, backend: str) -> Iterator[None]:
        """Hold a place at a backend; it is given back at the end, whatever happens."""
        self._in_flight[backend] += 1
        try:
            yield
        finally:
            self._in_flight[backend] -= 1
            if not self._in_flight[backend]:
                del self._in_flight[backend]
            self.wake({backend})

    async def wait(self, backends: frozenset[str], deadline_ms: float, timeout_ms: float) -> None:
        """Wait until a place at one of `backends` may be free, at most `timeout_ms`."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (deadline_ms, next(self._order), backends, woken)
        bisect.insort(self._waiting, entry, key=lambda one: one[:2])
        try:
            await asyncio.wait({woken}, timeout=max(timeout_ms, 0.0) / 1000)
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def wake(self, backends: Iterable[str]) -> None:
        """Wake the first waiter for each of `backends`; one woken for nothing waits again.

        Whoever was woken and then gives up must call this, or the place stays unused.
        """
        for backend in backends:
            for entry in self._waiting:
                if backend in entry[2]:
                    self._waiting.remove(entry)
                    entry[3].set_result(None)
                    break

    def wake_all(self) -> None:
        """Wake every waiter, because the routes have changed."""
        for entry in self._waiting:
            entry[3].set_result(None)
        self._waiting.clear()
