"""Usage within the last minute, counted in slots of a tenth of a second.

Usage counts until a minute after the end of its slot, so no more than the limit is used within any
60 s, wherever they begin.
"""

from collections import deque

SLOT_MS = 100.0
SLOTS = 600
"""Slots in a minute."""


class Slot:
    """The usage within a tenth of a second; `number` counts slots since the epoch."""

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
        """Return the usage that counts in slot `now`."""
        while self._slots and self._slots[0].number + SLOTS < now:
            self._total -= self._slots.popleft().amount
        return self._total

    def room_at(self, now: int, amount: int, limit: int) -> int:
        """Return the first slot, from `now` on, in which `amount` more is within the limit.

        An amount above the limit itself gets room once no other usage counts.
        """
        total = self.used(now)
        at = now
        for slot in self._slots:
            if total + amount <= limit:
                break
            total -= slot.amount
            at = slot.number + SLOTS + 1
        return at

    def take(self, now: int, amount: int) -> Slot:
        """Add usage in slot `now`."""
        if not self._slots or self._slots[-1].number < now:
            self._slots.append(Slot(now))
        slot = self._slots[-1]
        slot.amount += amount
        self._total += amount
        return slot

    def correct(self, slot: Slot, by: int) -> None:
        """Correct the usage of a slot by an amount (which may be negative),
        if the slot still counts."""
        if self._slots and slot.number >= self._slots[0].number:
            slot.amount += by
            self._total += by
