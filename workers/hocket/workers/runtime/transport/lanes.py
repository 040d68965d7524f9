"""Decides how many steps to request from each lane of a node type, and in what order fetched steps
start. Pure.

A worker requests no more waiting steps than it has free slots, so that none waits here while another
worker is idle. In addition every lane keeps a small standing request, so that a step in a quiet lane is
pushed to a worker at once and no lane is starved. Standing requests hold no slots, because otherwise
quiet lanes would keep slots idle (half of them if there are four). A step that arrives through one while
every slot is taken waits here for a moment, and is then passed on to another worker.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hocket.schemas.structs.steps import RequestedStep

WEIGHTS: Mapping[str, int] = {"urgent": 8, "normal": 4, "batch": 1}
"""How the slots are divided while every lane has more steps than there are slots."""
STANDING_DIVISOR = 32
"""A quiet lane keeps 1/32 of the slots requested, at least one."""
ACTIVE_DIVISOR = 4
"""A lane that just had steps keeps 1/4 of the slots requested: fewer requests per step."""


@dataclass
class Demand:
    """One lane as its worker sees it: `asked` steps are requested but have not arrived, `pending` were
    left in the lane when its latest step was sent, `batch` is the size of the latest request, and `turn`
    is the lane's current weight in the round robin."""

    asked: int = 0
    pending: int = 0
    batch: int = 0
    active: bool = False
    turn: int = 0


def standing(slots: int) -> int:
    """Return how many steps a quiet lane keeps requested."""
    return max(1, slots // STANDING_DIVISOR)


def held(slots: int, demand: Demand) -> int:
    """Return how many free slots a lane's requests will take. Standing requests count only as far as
    steps are known to be waiting for them."""
    expected = min(demand.asked, demand.pending)
    return max(expected, demand.asked - standing(slots))


def allot(slots: int, busy: int, demands: Mapping[str, Demand]) -> dict[str, int]:
    """Return how many steps to request in each lane now, and advance the turns in `demands`.

    While a slot is free, every lane gets its standing request. Beyond that, the lanes that have more
    steps than are requested take turns in proportion to their weights (smooth weighted round robin).
    """
    if busy >= slots:
        return {}
    wanted = {name: _missing(slots, demand) for name, demand in demands.items()}
    if not any(wanted.values()):
        return {}
    left = slots - busy - sum(held(slots, demand) for demand in demands.values())
    given = dict.fromkeys(demands, 0)
    for name, demand in demands.items():
        if demand.pending <= demand.asked and wanted[name]:
            given[name] = min(wanted[name], max(0, standing(slots) - demand.asked))
            wanted[name] -= given[name]
    _take_turns(left, wanted, given, demands)
    return {name: count for name, count in given.items() if count}


def _take_turns(
    left: int, wanted: dict[str, int], given: dict[str, int], demands: Mapping[str, Demand]
) -> None:
    """Give what is left to the lanes that want more, in turns."""
    while left > 0:
        waiting = [name for name, missing in wanted.items() if missing > 0]
        if not waiting:
            return
        if len(waiting) == 1:
            given[waiting[0]] += min(left, wanted[waiting[0]])
            return
        name = _next_turn(waiting, demands)
        given[name] += 1
        wanted[name] -= 1
        left -= 1


def _missing(slots: int, demand: Demand) -> int:
    """Return how many more steps the lane could use; 0 while more than half of its request is open.

    Steps that were requested from a lane that has some are already on their way: a request for every
    slot that becomes free would cost one request per step and bring nothing sooner.
    """
    target = standing(slots)
    if demand.active:
        target = max(target, slots // ACTIVE_DIVISOR)
    if demand.pending > demand.asked and demand.asked <= demand.batch // 2:
        return max(target, demand.pending) - demand.asked
    return target - demand.asked if demand.asked <= target // 2 else 0


def _next_turn(waiting: list[str], demands: Mapping[str, Demand]) -> str:
    total = sum(WEIGHTS[name] for name in waiting)
    for name in waiting:
        demands[name].turn += WEIGHTS[name]
    chosen = max(waiting, key=lambda name: (demands[name].turn, WEIGHTS[name]))
    demands[chosen].turn -= total
    return chosen


def latest_start_ms(step: RequestedStep, sent_at_ms: float) -> float:
    """Return when the step must start for its run to meet its deadline: least slack comes first."""
    return sent_at_ms + step.slack_ms


T = TypeVar("T")


class ReadyQueue(Generic[T]):
    """Fetched steps that have not started; the one that must start earliest comes out first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0

    def push(self, latest_start_ms: float, item: T) -> None:
        """Add an item; of two with the same time, the one added first comes first."""
        self._count += 1
        heapq.heappush(self._heap, (latest_start_ms, self._count, item))

    def pop(self) -> T | None:
        """Remove and return the item that must start earliest; None if there is none."""
        return heapq.heappop(self._heap)[2] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
