"""Which ends of runs the world may not have heard of yet.

An end is decided, committed, told, and known to be told when the streams acknowledged it SETTLED_MS
ago: a single server writes EVENTS without fsync, and one that comes back from a crash may have lost what
it acknowledged last. Up to when all are known to be told is kept in Postgres, so that the partition's
next owner tells only what came after that once more (the streams drop repeats), and so does this one
when the server comes back. That time never passes an end that is decided and not told, however long its
commit waits; and it stays CLOCKS_MS behind the time up to which the log is known to be applied: what
ends later must finish later by the log's time, whichever server gives it.
"""

import heapq
from collections import deque

CLOCKS_MS = 5_000.0
"""More than the clocks of NATS' servers and of coordinators differ by."""
SETTLED_MS = 10_000.0
"""How old an acknowledged message is that no crash of the server takes away any more."""


class Untold:
    """See the module. `told_ms`: up to when the former owner told all; times are when runs finished
    (epoch ms)."""

    def __init__(self, told_ms: float) -> None:
        self._kept_ms = told_ms
        self._latest_ms = 0.0
        self._heap: list[tuple[float, str]] = []
        self._open: dict[str, int] = {}
        self._fresh: set[str] = set()
        """Of those that are told now, what a stream had not before."""
        self._since: dict[str, float] = {}
        """When those that are told again were acknowledged before."""
        self._settling: dict[str, float] = {}
        """When the ends were acknowledged that the server may still lose (monotonic)."""
        self._acknowledged: deque[tuple[float, str]] = deque()
        self._settled: set[str] = set()
        """Runs that ended after `kept_ms`, whose ends the server does not lose any more."""
        self._passed: deque[tuple[float, str]] = deque()
        """What left the heap and may not be before `kept_ms` yet."""

    @property
    def kept_ms(self) -> float:
        """The time before which all ends are known to be told."""
        return self._kept_ms

    def decided(self, run_id: str, finished_at_ms: float) -> None:
        """A run's end waits for its commit, for which `told` is called, too."""
        self.ended(run_id, finished_at_ms, 1)

    def ended(self, run_id: str, finished_at_ms: float, posts: int) -> None:
        """A run's end is told by so many posts."""
        self._latest_ms = max(self._latest_ms, finished_at_ms)
        if run_id not in self._open:
            heapq.heappush(self._heap, (finished_at_ms, run_id))
        self._open[run_id] = self._open.get(run_id, 0) + posts
        since_ms = self._settling.pop(run_id, None)
        if since_ms is not None:
            self._since[run_id] = since_ms

    def told(self, run_id: str, at_ms: float, *, lasting: bool = False) -> None:
        """A stream has one of the posts of a run's end, or Postgres has the end, since `at_ms`
        (monotonic). `lasting`: it had it before the server came back, or does not lose it."""
        if run_id not in self._open:
            return
        if not lasting:
            self._fresh.add(run_id)
        left = self._open[run_id] - 1
        if left > 0:
            self._open[run_id] = left
            return
        del self._open[run_id]
        since_ms = self._since.pop(run_id, None)
        if run_id in self._fresh or since_ms is None:
            self._fresh.discard(run_id)
            self._settled.discard(run_id)
            self._settling[run_id] = at_ms
            self._acknowledged.append((at_ms, run_id))
        else:
            self._settling[run_id] = since_ms
            self._acknowledged.appendleft((since_ms, run_id))

    def has_told(self, run_id: str, finished_at_ms: float) -> bool:
        """Tell whether the end of a run that finished then is known to be told."""
        return finished_at_ms < self._kept_ms or run_id in self._settled

    def __len__(self) -> int:
        """Return how many ends no stream has acknowledged yet."""
        return len(self._open)

    def news(self, applied_ms: float, at_ms: float) -> float | None:
        """Return the time before which all ends are told, where that should be kept anew; up to
        `applied_ms` the log is applied, and `at_ms` it is (monotonic)."""
        while self._acknowledged and self._acknowledged[0][0] <= at_ms - SETTLED_MS:
            told_at_ms, run_id = self._acknowledged.popleft()
            if self._settling.get(run_id) == told_at_ms:
                del self._settling[run_id]
                self._settled.add(run_id)
        while self._heap and not self._is_awaited(self._heap[0][1]):
            self._passed.append(heapq.heappop(self._heap))
        told_ms = applied_ms - CLOCKS_MS
        if self._heap:
            told_ms = min(told_ms, self._heap[0][0])
        if told_ms <= self._kept_ms or self._latest_ms < self._kept_ms:
            return None
        self._kept_ms = told_ms
        while self._passed and self._passed[0][0] < told_ms:
            self._settled.discard(self._passed.popleft()[1])
        return told_ms

    def _is_awaited(self, run_id: str) -> bool:
        return run_id in self._open or run_id in self._settling
