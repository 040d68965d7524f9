"""An hour of production requests, sixty times as fast, and a clairvoyant schedule of workers for it."""

import csv
import gzip
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bench.support.places import DATA

TRACE = DATA / "AzureLLMInferenceTrace_conv.csv.gz"
SPEED = 60
SOON, LATER = "soon", "later"
DEADLINE_S = {SOON: 120 / SPEED, LATER: 600 / SPEED}
SOON_SHARE = 0.6
PREFILL_TOKENS_PER_S = 8_000
DECODE_TOKENS_PER_S = 40
SEED = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One request, in seconds of the replay: its arrival, its duration and its kind."""

    at_s: float
    takes_s: float
    kind: str

    @property
    def due_s(self) -> float:
        return self.at_s + DEADLINE_S[self.kind]


def requests(every: int) -> list[Request]:
    """Return every `every`-th request of the trace. Times and tokens come from the trace; which
    requests are urgent is drawn at random."""
    dice = random.Random(SEED)
    found: list[Request] = []
    with gzip.open(TRACE, "rt") as file:
        rows = list(csv.DictReader(file))[::every]
    first_s = _seconds(rows[0]["TIMESTAMP"])
    for row in rows:
        prefill_s = int(row["ContextTokens"]) / PREFILL_TOKENS_PER_S
        takes_s = prefill_s + int(row["GeneratedTokens"]) / DECODE_TOKENS_PER_S
        kind = SOON if dice.random() < SOON_SHARE else LATER
        at_s = (_seconds(row["TIMESTAMP"]) - first_s) / SPEED
        found.append(Request(at_s, takes_s / SPEED, kind))
    return found


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp[:26]).timestamp()


@dataclass(frozen=True)
class Fleet:
    """The properties of workers: slots of each, overhead of a step beyond its own duration, and
    start-up time, which is paid for."""

    slots: int
    overhead_s: float
    start_s: float


@dataclass(frozen=True)
class Schedule:
    """The number of serving workers in each segment of `segment_s` seconds."""

    workers: Sequence[int]
    segment_s: float

    def at(self, second: float) -> int:
        return self.workers[min(int(second / self.segment_s), len(self.workers) - 1)]

    def cost_s(self, fleet: Fleet) -> float:
        """Return the worker-seconds, including those of starting."""
        pairs = zip(self.workers, self.workers[1:], strict=False)
        started = sum(max(0, after - before) for before, after in pairs)
        return sum(self.workers) * self.segment_s + started * fleet.start_s


def missed(requests: Sequence[Request], fleet: Fleet, schedule: Schedule) -> int:
    """Return the number of missed deadlines if the earliest deadline goes first and started steps run
    to their end."""
    ready: list[tuple[float, float]] = []
    ends: list[float] = []
    late, coming, now_s = 0, 0, 0.0
    while coming < len(requests) or ready:
        while ends and ends[0] <= now_s:
            heapq.heappop(ends)
        while coming < len(requests) and requests[coming].at_s <= now_s:
            one = requests[coming]
            heapq.heappush(ready, (one.due_s, one.takes_s + fleet.overhead_s))
            coming += 1
        while ready and len(ends) < schedule.at(now_s) * fleet.slots:
            due_s, takes_s = heapq.heappop(ready)
            if now_s + takes_s > due_s:
                late += 1  # it would miss its deadline, so it is never started
            else:
                heapq.heappush(ends, now_s + takes_s)
        next_s = [requests[coming].at_s] if coming < len(requests) else []
        if ready:
            next_s += ends[:1]
            next_s.append((int(now_s / schedule.segment_s + 1e-9) + 1) * schedule.segment_s)
        if next_s:
            now_s = max(min(next_s), now_s + 1e-9)
    return late


def clairvoyant(
    requests: Sequence[Request], fleet: Fleet, segment_s: float, max_missed: int
) -> Schedule:
    """Return a cheap schedule that knows all requests in advance and misses at most `max_missed`
    deadlines.

    It starts from the smallest constant number of workers and removes workers from segments as long as
    that lowers the cost."""
    count = int(requests[-1].at_s / segment_s) + 1
    workers = 1
    while missed(requests, fleet, Schedule([workers] * count, segment_s)) > max_missed:
        workers += 1
    found = Schedule([workers] * count, segment_s)
    better = True
    while better:
        better = False
        for length in (4, 2, 1):
            for first in range(count):
                fewer = list(found.workers)
                for place in range(first, min(first + length, count)):
                    fewer[place] = max(1, fewer[place] - 1)
                tried = Schedule(fewer, segment_s)
                if tried.cost_s(fleet) < found.cost_s(fleet) and (
                    missed(requests, fleet, tried) <= max_missed
                ):
                    found, better = tried, True
    return found
