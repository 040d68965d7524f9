"""What is used within the last minute, in tenths of a second.

What was used counts until the minute behind its whole slot is over, so that no more than the limit is
used within any 60 s, wherever they begin.
"""

from collections import deque

SLOT_MS = 100.0
SLOTS = 600
"""In a minute."""


class Slot:
    """What was used within a tenth of a second; `number` counts from the epoch."""

    __slots__ = ("amount", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.amount = 0


class Minute:
    """The last minute of one account."""

    __slots__ = ("_slots", "_total")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._total = 0

    def used(self, now: int) -> int:
        """Return what counts now."""
        while self._slots and self._slots[0].number + SLOTS < now:
            self._total -= self._slots.popleft().amount
        return self._total

    def room_at(self, now: int, amount: int, limit: int) -> int:
        """Return the first slot, from now on, at which so much more is within the limit. What is beyond
        the limit by itself has room when nothing else counts."""
        total = self.used(now)
        at = now
        for slot in self._slots:
            if total + amount <= limit:
                break
            total -= slot.amount
            at = slot.number + SLOTS + 1
        return at

    def take(self, now: int, amount: int) -> Slot:
        """Use so much now."""
        if not self._slots or self._slots[-1].number < now:
            self._slots.append(Slot(now))
        slot = self._slots[-1]
        slot.amount += amount
        self._total += amount
        return slot

    def correct(self, slot: Slot, by: int) -> None:
        """Count so much more, or less, of what was used in a slot, as long as it counts."""
        if self._slots and slot.number >= self._slots[0].number:
            slot.amount += by
            self._total += by
