"""Calls that wait for a place of a pool: who is next, who has to go.

One rule orders them: whoever is *due* first. A call is due when it must start to make its deadline
(deadline less expected duration, so that the least slack goes first), later by the handicap of its
class, and at the latest when its class's patience is over: nobody waits for ever behind calls that came
after. Slots that are reserved for interactive calls are also for those that are due already. A room
is bounded; when it is full the last in line of the lowest class goes, if that is not the
newcomer itself.
"""

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hocket.schemas.messages import Priority

HANDICAP_MS = {
    Priority.INTERACTIVE: 0.0,
    Priority.STANDARD: 5_000.0,
    Priority.BATCH: 60_000.0,
}
"""How much more slack an interactive call may have and still go before one of this class."""
PATIENCE_MS = {
    Priority.INTERACTIVE: 10_000.0,
    Priority.STANDARD: 60_000.0,
    Priority.BATCH: 600_000.0,
}
"""How long a call of a class waits at most behind later ones."""
_RANK = {Priority.INTERACTIVE: 0, Priority.STANDARD: 1, Priority.BATCH: 2}


class QueueClass(StrEnum):
    """Where a call stands in line: which of the places that are kept for some it may have."""

    FAST = "fast"
    INTERACTIVE = "interactive"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A waiting call: where it may be served, and when it is due. `order` is that of arrival."""

    order: int
    priority: Priority
    pools: frozenset[str]
    deadline_at_ms: float
    expected_ms: float
    entered_at_ms: float
    fast: bool = False
    due_ms: float = field(init=False)

    def __post_init__(self) -> None:
        must_start_ms = self.deadline_at_ms - self.expected_ms + HANDICAP_MS[self.priority]
        out_of_patience_ms = self.entered_at_ms + PATIENCE_MS[self.priority]
        object.__setattr__(self, "due_ms", min(must_start_ms, out_of_patience_ms))

    def __lt__(self, other: "Ticket") -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)

    @property
    def row(self) -> QueueClass:
        """Where it stands in line; a fast call of any class stands with the fast ones."""
        if self.fast:
            return QueueClass.FAST
        return QueueClass.INTERACTIVE if self.priority is Priority.INTERACTIVE else QueueClass.OTHER

    @property
    def shed_priority(self) -> tuple[int, float, int]:
        """The larger, the sooner it has to go: the lowest class, then the latest due."""
        return (_RANK[self.priority], self.due_ms, self.order)


class WaitQueue:
    """The calls that wait: per pool a line of the fast ones, of the interactive ones and of the others,
    the most urgent first. A call stands in a line of each pool that can serve it."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, QueueClass], list[Ticket]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return self._tickets

    def waiting(self, pool: str) -> int:
        """Return how many calls wait for a place of a pool."""
        return sum(len(self._lines.get((pool, row), ())) for row in QueueClass)

    def waiting_by_class(self, pool: str) -> Counter[Priority]:
        """Return how many calls of each class wait for a place of a pool."""
        lines = (self._lines.get((pool, row), ()) for row in QueueClass)
        return Counter(ticket.priority for line in lines for ticket in line)

    def pools(self) -> frozenset[str]:
        """Return the pools that somebody waits for."""
        return frozenset(pool for pool, _ in self._lines)

    def line(
        self, pool: str, most: int, rows: Sequence[QueueClass] = tuple(QueueClass)
    ) -> list[Ticket]:
        """Return the first `most` calls in a pool's line, or in some rows of it."""
        lines = [self._lines.get((pool, row), [])[:most] for row in rows]
        return sorted(ticket for line in lines for ticket in line)[:most]

    def due(self, pool: str, now_ms: float, most: int) -> list[Ticket]:
        """Return the first `most` calls that are neither fast nor interactive and are due already."""
        line = self._lines.get((pool, QueueClass.OTHER), [])[:most]
        return line[: bisect.bisect_right(line, now_ms, key=lambda ticket: ticket.due_ms)]

    def enter(self, ticket: Ticket) -> None:
        """Put a call in line."""
        for pool in ticket.pools:
            bisect.insort(self._lines.setdefault((pool, ticket.row), []), ticket)
        self._tickets += 1

    def leave(self, ticket: Ticket) -> bool:
        """Take a call out of line; tell whether it was still there."""
        found = False
        for pool in ticket.pools:
            line = self._lines.get((pool, ticket.row), [])
            index = bisect.bisect_left(line, ticket)
            if index < len(line) and line[index] is ticket:
                found = True
                del line[index]
                if not line:
                    del self._lines[pool, ticket.row]
        self._tickets -= found
        return found

    def to_shed(self, newcomer: Ticket, pool: str) -> Ticket:
        """Return who has to go where a pool's room is full: the newcomer, or a lesser one."""
        return max(
            newcomer,
            *(self._least_of(self._lines.get((pool, row), [])) or newcomer for row in QueueClass),
            key=lambda ticket: ticket.shed_priority,
        )

    def _least_of(self, line: list[Ticket]) -> Ticket | None:
        least: Ticket | None = None
        for ticket in reversed(line):
            if least is None or ticket.shed_priority > least.shed_priority:
                least = ticket
            if least.priority is Priority.BATCH:
                break  # the latest due of the lowest class
        return least
