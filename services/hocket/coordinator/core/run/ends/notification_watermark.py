"""Which ends of runs may not have been announced to the world yet.

An end is decided, committed, announced, and known to be announced (`told`) once SETTLED_MS have
passed since the streams acknowledged it: a single server writes EVENTS without fsync, and after a
crash it may have lost what it acknowledged last. The time before which all ends are known to be
announced is kept in Postgres, so that the partition's next owner repeats only the announcements
after it (the streams drop repeats), and so does the present owner when the server comes back. That
time never passes an end that is decided and not announced, however long its commit takes. It also
stays CLOCKS_MS behind the time up to which the log is known to be applied: what ends later must
finish later by the log's time, whichever server gives it.

If owners and servers came and went faster than that, no owner would ever see an end settle.
Therefore a mark is kept beside that time: all ends before `acked_ms` had been acknowledged at
`acked_at_ms`. An end that the next owner announces again, and that the stream drops as a repeat,
was there all along, and settles as of then. A mark holds until its ends have settled, then the next
one is set; if the server lost an end, the mark is moved back.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from math import inf

CLOCKS_MS = 5_000.0
"""More than the clocks of the NATS servers and the coordinators differ by."""
SETTLED_MS = 10_000.0
"""The age at which no crash of the server can take away an acknowledged message any more."""
_VOID = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class NotificationWatermark:
    """What is kept for a partition: ends of runs that finished before `told_ms` are known to be
    announced, those before `acked_ms` had been acknowledged by `acked_at_ms` (epoch ms; 0: not
    known)."""

    told_ms: float = 0.0
    acked_ms: float = 0.0
    acked_at_ms: float = 0.0


NOTHING = NotificationWatermark()


class NotificationTracker:
    """Tracks up to when the ends of runs are known to be announced. `told` is what the former owner
    kept, with its `acked_at_ms` on the clock of the acknowledgements below (monotonic); all other
    times are when runs finished (epoch ms)."""

    def __init__(self, told: NotificationWatermark) -> None:
        self._kept = NotificationWatermark(
            told.told_ms
        )  # its mark is the former owner's until a new one is kept
        self._mark = (told.acked_ms, told.acked_at_ms)
        self._latest_ms = 0.0
        self._heap: list[tuple[float, str]] = []
        self._open_heap: list[tuple[float, str]] = []
        """Of the same entries, at least those that are open."""
        self._open: dict[str, int] = {}
        self._fresh: set[str] = set()
        """Of the ends being announced, those that a stream did not have before."""
        self._since: dict[str, tuple[float, float]] = {}
        """For ends that are announced again: when they were acknowledged before, and when they
        finished."""
        self._settling: dict[str, float] = {}
        """When those ends were acknowledged that the server may still lose (monotonic)."""
        self._acknowledged: deque[tuple[float, str]] = deque()
        self._settled: set[str] = set()
        """Runs that ended after `kept_ms` and whose ends the server cannot lose any more."""
        self._passed: deque[tuple[float, str]] = deque()
        """Entries that have left the heap but may not be before `kept_ms` yet."""

    @property
    def kept_ms(self) -> float:
        """The time before which all ends are known to be announced."""
        return self._kept.told_ms

    @property
    def marked(self) -> bool:
        """Whether a mark is kept."""
        return self._kept.acked_ms > 0

    def decided(self, run_id: str, finished_at_ms: float) -> None:
        """Note that a run's end waits for its commit, which `told` then reports, too."""
        self.ended(run_id, finished_at_ms, 1)

    def ended(self, run_id: str, finished_at_ms: float, posts: int) -> None:
        """Note that a run's end is announced by this many posts."""
        self._latest_ms = max(self._latest_ms, finished_at_ms)
        if run_id not in self._open:
            entry = (finished_at_ms, run_id)
            heapq.heappush(self._heap, entry)
            heapq.heappush(self._open_heap, entry)
        self._open[run_id] = self._open.get(run_id, 0) + posts
        since_ms = self._settling.pop(run_id, None)
        acked_ms, acked_at_ms = self._mark
        if since_ms is None and finished_at_ms < acked_ms:
            since_ms = acked_at_ms + CLOCKS_MS  # the mark was read off another clock
        if since_ms is not None:
            self._since.setdefault(run_id, (since_ms, finished_at_ms))

    def told(self, run_id: str, at_ms: float, *, lasting: bool = False) -> None:
        """Note that a stream has one of the posts of a run's end, or Postgres has the end, since
        `at_ms` (monotonic). `lasting`: it had it before, or cannot lose it."""
        if run_id not in self._open:
            return
        if not lasting:
            self._fresh.add(run_id)
        left = self._open[run_id] - 1
        if left > 0:
            self._open[run_id] = left
            return
        del self._open[run_id]
        before = self._since.pop(run_id, None)
        if before is not None and run_id not in self._fresh:
            self._settling[run_id] = before[0]
            self._acknowledged.appendleft((before[0], run_id))
            return
        if before is not None:
            self._lost(before[1])
        self._fresh.discard(run_id)
        self._settled.discard(run_id)
        self._settling[run_id] = at_ms
        self._acknowledged.append((at_ms, run_id))

    def unmarked(self) -> None:
        """Note that no mark is kept any more."""
        self._kept = NotificationWatermark(self.kept_ms)

    def has_told(self, run_id: str, finished_at_ms: float) -> bool:
        """Tell whether the end of a run that finished at this time is known to be announced."""
        return finished_at_ms < self.kept_ms or run_id in self._settled

    def __len__(self) -> int:
        """Return how many ends have not been fully acknowledged yet."""
        return len(self._open)

    def news(self, applied_ms: float, at_ms: float) -> NotificationWatermark | None:
        """Return the watermark to keep now, or None if it has not changed. The log is applied up to
        `applied_ms`; `at_ms` is the present time (monotonic). Must not be called while the server
        is away."""
        while self._acknowledged and self._acknowledged[0][0] <= at_ms - SETTLED_MS:
            told_at_ms, run_id = self._acknowledged.popleft()
            if self._settling.get(run_id) == told_at_ms:
                del self._settling[run_id]
                self._settled.add(run_id)
        while self._heap and not self._is_awaited(self._heap[0][1]):
            self._passed.append(heapq.heappop(self._heap))
        if self._latest_ms < self.kept_ms:
            return None
        bound_ms = applied_ms - CLOCKS_MS
        if self._mark[1] <= at_ms - SETTLED_MS - CLOCKS_MS:
            bound_ms = max(
                bound_ms, self._mark[0]
            )  # the log was applied that far, even if it is being read again now
        earliest_ms = self._heap[0][0] if self._heap else inf
        told_ms = max(min(bound_ms, earliest_ms), self.kept_ms)
        kept = NotificationWatermark(told_ms, *self._marked_anew(told_ms, bound_ms, at_ms))
        if kept == self._kept:
            return None
        self._kept = kept
        while self._passed and self._passed[0][0] < told_ms:
            self._settled.discard(self._passed.popleft()[1])
        return kept

    def _marked_anew(self, told_ms: float, bound_ms: float, at_ms: float) -> tuple[float, float]:
        """Return the mark: a new one once the last has settled, a void one while an end that it
        covers is announced again and not acknowledged yet."""
        while self._open_heap and self._open_heap[0][1] not in self._open:
            heapq.heappop(self._open_heap)
        open_ms = self._open_heap[0][0] if self._open_heap else inf
        if self._mark[0] <= told_ms:
            acked_ms = min(bound_ms, open_ms)
            self._mark = (acked_ms, at_ms) if acked_ms > told_ms else _VOID
        return self._mark if self._mark[0] <= open_ms else _VOID

    def _lost(self, finished_at_ms: float) -> None:
        """Note that the server lost, or may have lost, an end that it had acknowledged: the mark
        now covers only ends that finished before it."""
        if finished_at_ms < self._mark[0]:
            self._mark = (finished_at_ms, self._mark[1])

    def _is_awaited(self, run_id: str) -> bool:
        return run_id in self._open or run_id in self._settling
