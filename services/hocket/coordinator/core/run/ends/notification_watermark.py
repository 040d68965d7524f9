"""Which ends of runs the world may not have heard of yet.

An end is decided, committed, told, and known to be told when the streams acknowledged it SETTLED_MS
ago: a single server writes EVENTS without fsync, and one that comes back from a crash may have lost what
it acknowledged last. Up to when all are known to be told is kept in Postgres, so that the partition's
next owner tells only what came after that once more (the streams drop repeats), and so does this one
when the server comes back. That time never passes an end that is decided and not told, however long its
commit waits; and it stays CLOCKS_MS behind the time up to which the log is known to be applied: what
ends later must finish later by the log's time, whichever server gives it.

Where owners and servers come and go faster than that, no owner would see an end settle. So one mark is
kept beside that time: before when all ends were acknowledged, and since when (`Told`). What the next
owner tells again and the stream drops as a repeat was there all along, and settles as of then. A mark
holds until its ends have settled, then the next one is set; where the server lost an end it goes back.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from math import inf

CLOCKS_MS = 5_000.0
"""More than the clocks of NATS' servers and of coordinators differ by."""
SETTLED_MS = 10_000.0
"""How old an acknowledged message is that no crash of the server takes away any more."""
_VOID = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class NotificationWatermark:
    """What is kept of a partition: the ends of runs that finished before `told_ms` are known to be told,
    those before `acked_ms` were acknowledged by `acked_at_ms` (epoch ms; 0: none are known to be)."""

    told_ms: float = 0.0
    acked_ms: float = 0.0
    acked_at_ms: float = 0.0


NOTHING = NotificationWatermark()


class NotificationTracker:
    """Tracks up to when the ends of runs are known to be told. `told` is what the former owner
    kept, its `acked_at_ms` as the times of acknowledgements below (monotonic); other times are when
    runs finished (epoch ms)."""

    def __init__(self, told: NotificationWatermark) -> None:
        self._kept = NotificationWatermark(
            told.told_ms
        )  # its mark is the former owner's until it is kept anew
        self._mark = (told.acked_ms, told.acked_at_ms)
        self._latest_ms = 0.0
        self._heap: list[tuple[float, str]] = []
        self._open: dict[str, int] = {}
        self._fresh: set[str] = set()
        """Of those that are told now, what a stream had not before."""
        self._since: dict[str, tuple[float, float]] = {}
        """When those that are told again were acknowledged before, and when they finished."""
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
        return self._kept.told_ms

    @property
    def marked(self) -> bool:
        """Whether a mark is kept."""
        return self._kept.acked_ms > 0

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
        acked_ms, acked_at_ms = self._mark
        if since_ms is None and finished_at_ms < acked_ms:
            since_ms = acked_at_ms + CLOCKS_MS  # it was read off another clock
        if since_ms is not None:
            self._since.setdefault(run_id, (since_ms, finished_at_ms))

    def told(self, run_id: str, at_ms: float, *, lasting: bool = False) -> None:
        """A stream has one of the posts of a run's end, or Postgres has the end, since `at_ms`
        (monotonic). `lasting`: it had it before, or does not lose it."""
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
        """No mark is kept any more."""
        self._kept = NotificationWatermark(self.kept_ms)

    def has_told(self, run_id: str, finished_at_ms: float) -> bool:
        """Tell whether the end of a run that finished then is known to be told."""
        return finished_at_ms < self.kept_ms or run_id in self._settled

    def __len__(self) -> int:
        """Return how many ends no stream has acknowledged yet."""
        return len(self._open)

    def news(self, applied_ms: float, at_ms: float) -> NotificationWatermark | None:
        """Return what should be kept anew, if anything; up to `applied_ms` the log is applied, and
        `at_ms` it is (monotonic). Not to be asked while the server is away."""
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
            )  # so far it was applied, if it is read again now
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
        """Return the mark, a new one where the last has settled; a void one while what it says is told
        again and not acknowledged yet."""
        waiting = (finished_at_ms for finished_at_ms, run_id in self._heap if run_id in self._open)
        open_ms = min(waiting, default=inf)
        if self._mark[0] <= told_ms:
            acked_ms = min(bound_ms, open_ms)
            self._mark = (acked_ms, at_ms) if acked_ms > told_ms else _VOID
        return self._mark if self._mark[0] <= open_ms else _VOID

    def _lost(self, finished_at_ms: float) -> None:
        """The server lost an end that it had acknowledged, or may have: the mark is good for those only
        that finished before."""
        if finished_at_ms < self._mark[0]:
            self._mark = (finished_at_ms, self._mark[1])

    def _is_awaited(self, run_id: str) -> bool:
        return run_id in self._open or run_id in self._settling
