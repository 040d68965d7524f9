"""The runs that a partition has in memory: those in flight, and those that ended recently.

The size of runs in flight is counted in bytes of the events they were made of, or of their values.
Ended runs are kept to recognize a repeated task or a late result, up to MAX_ENDED runs and
MAX_ENDED_BYTES of memory; any others, and parked ones, are only in Postgres. One that is larger is
kept for a moment nevertheless: its late results come at once, and each would read all its steps back.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from hocket.coordinator.core.run.parking import PERSON_QUIET_MS, rests_until
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.restore import StoredRun
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.storage.pending_changes import Dirty

MAX_ENDED = 4_000
MAX_ENDED_BYTES = 16 * 1024 * 1024
LARGE_BYTES = MAX_ENDED_BYTES // 2
"""The most that an ended run counts, so that a large one pushes out neither itself nor all others ..."""
LARGE_KEPT_MS = 30_000.0
"""... and how long such a run is kept, because it may take far more than it counts."""
RUN_BYTES = 1_000
"""The least that a run counts."""
STEP_BYTES = 3_000
"""What a step of an ended run counts besides its events: eight that call a model were 31 kB in total."""
MAX_RESTING = 2_000
"""How many idle runs are found at a time: their rows are written in one batch."""


@dataclass(slots=True)
class _Seen:
    """The revision at which a run was seen, since when it has had it, and whether it was found to be
    idle: it is then being parked, however long its row waits for Postgres."""

    revision: int
    since_ms: float
    is_parking: bool = False


class LookedUp(NamedTuple):
    """The rows of a run, and the changes that were decided but not written before they were read."""

    stored: StoredRun | None
    unwritten: list[Dirty]


@dataclass(slots=True)
class Held:
    """What a tenant's runs in flight count."""

    runs: int = 0
    events_bytes: int = 0
    values_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """How much they count: see `Runs.in_flight_bytes`."""
        return max(self.events_bytes, self.values_bytes) + RUN_BYTES * self.runs


class Runs:
    """The runs of a partition that are in memory."""

    def __init__(self) -> None:
        self.in_flight: dict[str, Run] = {}
        self.marked: set[str] = set()
        """Runs in memory whose row says, or will say, that they are parked."""
        self.dropped: dict[str, bool] = {}
        """Runs whose state must be read back, and whether their attempts are still out."""
        self.committed: dict[str, list[Dispatch]] = {}
        """For those runs, the steps that were committed meanwhile: they go out when their run is
        back."""
        self.looked_up: dict[str, LookedUp] = {}
        """Runs that were read together for the events of one message, until they are needed."""
        self.forgotten_ms = 0.0
        """The latest time at which a run that is no longer here was accepted or ended (epoch ms)."""
        self.by_tenant: dict[str, Held] = {}
        """For the tenants that have runs in flight: never more entries than runs."""
        self._ended: OrderedDict[str, tuple[Run, int]] = OrderedDict()
        self._ended_bytes = 0
        self._large: dict[str, float] = {}
        """Until when large ended runs are kept (epoch ms)."""
        self._seen: dict[str, _Seen] = {}
        self._in_flight_bytes = 0
        self._values_bytes = 0

    @property
    def in_flight_bytes(self) -> int:
        """How many bytes the runs in flight count: their events or their values, whichever is more."""
        return max(self._in_flight_bytes, self._values_bytes) + RUN_BYTES * len(self.in_flight)

    def get(self, run_id: str) -> Run | None:
        """Return a run in flight, or one that ended recently; None if it is neither."""
        run = self.in_flight.get(run_id)
        if run is None and (ended := self._ended.get(run_id)) is not None:
            return ended[0]
        return run

    def put(self, run: Run) -> None:
        """Keep a run as it is now; one that has ended is remembered for a while."""
        run_id = run.run_id
        if self.looked_up:
            self.looked_up.pop(run_id, None)
        if not run.has_ended:
            before = self.in_flight.get(run_id)
            grown_bytes = run.size_bytes - (run.counted_bytes or 0)
            if before is run:
                if grown_bytes:
                    self._values_bytes += grown_bytes
                    self.by_tenant[run.tenant].values_bytes += grown_bytes
                    run.counted_bytes = run.size_bytes
                return
            if before is not None:
                self._let_go(before)
            is_new = run.counted_bytes is None
            self._count(run.tenant, runs=int(is_new), values_bytes=grown_bytes)
            run.counted_bytes = run.size_bytes
            self.in_flight[run_id] = run
            return
        if (before := self.in_flight.pop(run_id, None)) is not None or run_id not in self._ended:
            self.remember(run, self._let_go(before or run))
        self.dropped.pop(run_id, None)
        self.committed.pop(run_id, None)

    def drop(self, run: Run) -> None:
        """Drop a run in flight whose state is unusable, so that it is read back from its rows."""
        if self.in_flight.get(run.run_id) is run:
            del self.in_flight[run.run_id]
            self._let_go(run)
            self.dropped[run.run_id] = True

    def remember(self, run: Run, size_bytes: int = 0) -> None:
        """Keep an ended run for a while; `size_bytes` is the size of its events, if known."""
        size_bytes = max(size_bytes, run.size_bytes) + RUN_BYTES + STEP_BYTES * len(run.steps)
        self.forget(run.run_id)
        if size_bytes > LARGE_BYTES:
            size_bytes = LARGE_BYTES
            self._large[run.run_id] = inf
        self._ended[run.run_id] = (run, size_bytes)
        self._ended_bytes += size_bytes
        while len(self._ended) > MAX_ENDED or self._ended_bytes > MAX_ENDED_BYTES:
            self._let_fade(next(iter(self._ended)))

    def clear(self) -> None:
        """Drop everything."""
        self.committed.clear()
        self.looked_up.clear()
        for kept in (self.in_flight, self.marked, self.dropped, self.by_tenant, self._ended):
            kept.clear()
        self._seen.clear()
        self._large.clear()
        self._ended_bytes = self._in_flight_bytes = self._values_bytes = 0

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        found = self._ended.pop(run_id, None)
        if found is not None:
            self._large.pop(run_id, None)
            self._ended_bytes -= found[1]

    def forget_large(self, now_ms: float) -> None:
        """Drop large runs that ended some time ago; to be called about once a second."""
        for run_id, until_ms in list(self._large.items()):
            if until_ms <= now_ms:
                self._let_fade(run_id)
            else:
                self._large[run_id] = min(until_ms, now_ms + LARGE_KEPT_MS)

    def _let_fade(self, run_id: str) -> None:
        """Drop a run that has ended and may still be named."""
        run = self._ended[run_id][0]
        self.forget(run_id)
        assert run.finished_at_ms is not None, run_id
        self.forgotten_ms = max(self.forgotten_ms, run.finished_at_ms)
        run.untie()

    def grew(self, run_id: str, size_bytes: int) -> None:
        """Count an event of this size for a run in flight."""
        run = self.in_flight.get(run_id)
        if run is not None:
            run.events_bytes += size_bytes
            self._in_flight_bytes += size_bytes
            self.by_tenant[run.tenant].events_bytes += size_bytes

    def resting(self, now_ms: float) -> list[tuple[Run, float]]:
        """Return the idle runs, each once, and until when they rest (epoch ms); to be called about
        once a second."""
        found: list[tuple[Run, float]] = []
        seen, self._seen = self._seen, {}
        for run_id, run in self.in_flight.items():
            before = seen.get(run_id)
            if before is None or before.revision != run.revision:
                self._seen[run_id] = _Seen(run.revision, now_ms)
                continue
            self._seen[run_id] = before
            quiet_ms = now_ms - before.since_ms
            if before.is_parking or quiet_ms < PERSON_QUIET_MS or len(found) >= MAX_RESTING:
                continue
            until_ms = rests_until(run, quiet_ms=quiet_ms, now_ms=now_ms)
            if until_ms is not None:
                before.is_parking = True
                found.append((run, until_ms))
        return found

    def park(self, run: Run, revision: int) -> bool:
        """Drop a run whose row says that it is parked, unless it has changed since it had this
        revision; tell whether it was dropped."""
        if self.in_flight.get(run.run_id) is not run or run.revision != revision:
            return False
        del self.in_flight[run.run_id]
        self._let_go(run)
        run.untie()
        self.marked.discard(run.run_id)
        self.forgotten_ms = max(self.forgotten_ms, run.accepted_at_ms)
        return True

    def _let_go(self, run: Run) -> int:
        size_bytes, run.events_bytes = run.events_bytes, 0
        values_bytes, run.counted_bytes = run.counted_bytes, None
        if values_bytes is not None:  # otherwise it ended as it began
            self._count(run.tenant, runs=-1, events_bytes=-size_bytes, values_bytes=-values_bytes)
        self._seen.pop(run.run_id, None)
        return size_bytes

    def _count(
        self, tenant: str, *, runs: int = 0, events_bytes: int = 0, values_bytes: int = 0
    ) -> None:
        self._in_flight_bytes += events_bytes
        self._values_bytes += values_bytes
        held = self.by_tenant.setdefault(tenant, Held())
        held.runs += runs
        held.events_bytes += events_bytes
        held.values_bytes += values_bytes
        if not held.runs:
            del self.by_tenant[tenant]
