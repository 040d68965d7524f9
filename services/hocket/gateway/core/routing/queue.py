"""Calls waiting for a place in a pool: which is served next, and which is dropped when the queue is
full.

Calls are served in the order in which they are *due*. A call is due when it must start to meet its
deadline (deadline minus expected duration, so the least slack goes first) plus the handicap of its
class, but at the latest when the patience of its class runs out, so no call waits forever behind
later ones. Slots reserved for interactive calls may also be used by calls that are already due.
Queues are bounded; when one is full, the tenant with the most calls in it loses its last one of the
lowest class, which may be the newcomer itself.
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
"""How much more slack (ms) an interactive call may have and still be served
before a call of this class."""
PATIENCE_MS = {
    Priority.INTERACTIVE: 10_000.0,
    Priority.STANDARD: 60_000.0,
    Priority.BATCH: 600_000.0,
}
"""The longest time (ms) that a call of this class waits behind later ones."""
_RANK = {Priority.INTERACTIVE: 0, Priority.STANDARD: 1, Priority.BATCH: 2}


class QueueClass(StrEnum):
    """The row in which a call waits, which decides which reserved places it may use."""

    FAST = "fast"
    INTERACTIVE = "interactive"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A waiting call: the pools that can serve it, and when it is due.
    `order` is its order of arrival."""

    order: int
    priority: Priority
    pools: frozenset[str]
    deadline_at_ms: float
    expected_ms: float
    entered_at_ms: float
    fast: bool = False
    tenant: str = ""
    due_ms: float = field(init=False)

    def __post_init__(self) -> None:
        must_start_ms = self.deadline_at_ms - self.expected_ms + HANDICAP_MS[self.priority]
        out_of_patience_ms = self.entered_at_ms + PATIENCE_MS[self.priority]
        object.__setattr__(self, "due_ms", min(must_start_ms, out_of_patience_ms))

    def __lt__(self, other: "Ticket") -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)

    @property
    def row(self) -> QueueClass:
        """The row it waits in; fast calls of any class share one row."""
        if self.fast:
            return QueueClass.FAST
        return QueueClass.INTERACTIVE if self.priority is Priority.INTERACTIVE else QueueClass.OTHER

    @property
    def shed_priority(self) -> tuple[int, float, int]:
        """The larger, the sooner it is dropped of a tenant's calls: lowest class first, then the latest
        due."""
        return (_RANK[self.priority], self.due_ms, self.order)


class WaitQueue:
    """The waiting calls.

    Each pool has a line for fast, for interactive and for other calls, the most urgent first. A
    call is in a line of every pool that can serve it.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, QueueClass], list[Ticket]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return self._tickets

    def waiting(self, pool: str) -> int:
        """Return how many calls wait for a place in a pool."""
        return sum(len(self._lines.get((pool, row), ())) for row in QueueClass)

    def waiting_by_class(self, pool: str) -> Counter[Priority]:
        """Return how many calls of each class wait for a place in a pool."""
        lines = (self._lines.get((pool, row), ()) for row in QueueClass)
        return Counter(ticket.priority for line in lines for ticket in line)

    def pools(self) -> frozenset[str]:
        """Return the pools that any call waits for."""
        return frozenset(pool for pool, _ in self._lines)

    def line(
        self, pool: str, most: int, rows: Sequence[QueueClass] = tuple(QueueClass)
    ) -> list[Ticket]:
        """Return the first `most` calls waiting for a pool, optionally only those in some rows."""
        lines = [self._lines.get((pool, row), [])[:most] for row in rows]
        return sorted(ticket for line in lines for ticket in line)[:most]

    def due(self, pool: str, now_ms: float, most: int) -> list[Ticket]:
        """Return the calls, among the first `most` neither fast nor interactive,
        that are already due."""
        line = self._lines.get((pool, QueueClass.OTHER), [])[:most]
        return line[: bisect.bisect_right(line, now_ms, key=lambda ticket: ticket.due_ms)]

    def enter(self, ticket: Ticket) -> None:
        """Add a call to its lines."""
        for pool in ticket.pools:
            bisect.insort(self._lines.setdefault((pool, ticket.row), []), ticket)
        self._tickets += 1

    def leave(self, ticket: Ticket) -> bool:
        """Remove a call from its lines; return whether it was still there."""
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
        """Return the call to drop when a pool's queue is full: the least important one of the tenant
        that has the most there, the newcomer included. Callers choose the class of their calls, so
        nobody's calls are dropped for a tenant that has more than they."""
        waiting = [
            newcomer,
            *(one for row in QueueClass for one in self._lines.get((pool, row), ())),
        ]
        counts = Counter(ticket.tenant for ticket in waiting)
        most = max(counts.values())
        return max(
            (ticket for ticket in waiting if counts[ticket.tenant] == most),
            key=lambda ticket: ticket.shed_priority,
        )
