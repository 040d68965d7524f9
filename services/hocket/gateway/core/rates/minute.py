"""Usage within the last minute, counted in slots of a tenth of a second.

Usage counts until a minute after the end of its slot, so no more than the limit is used within any
60 s, wherever they begin. What a call in progress is expected to use counts until it ends, and then
what it used, in the slot in which it began. Of a call that took longer than a minute, what it used in
its last minute counts, for a minute from its end.
"""

from collections import deque

SLOT_MS = 100.0
SLOTS = 600
"""Slots in a minute."""
OVERDUE_SLOTS = 50
"""After how many slots a call that has been in progress for over a minute is assumed to end, and those
that wait for it look again."""


class Slot:
    """The usage within a tenth of a second, and what the calls in progress that began in it are expected
    to use; `number` counts slots since the epoch."""

    __slots__ = ("amount", "expected", "is_over", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.amount = 0
        self.expected = 0
        self.is_over = False
        """Whether its minute is over."""


class Minute:
    """The last minute of one account."""

    __slots__ = ("_overdue", "_slots", "_total")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._total = 0
        self._overdue = 0
        """What calls in progress for over a minute are expected to use; the total includes it."""

    def used(self, now: int) -> int:
        """Return the usage that counts in slot `now`."""
        while self._slots and self._slots[0].number + SLOTS < now:
            slot = self._slots.popleft()
            slot.is_over = True
            self._total -= slot.amount
            self._overdue += slot.expected
        return self._total

    def room_at(self, now: int, amount: int, limit: int) -> int:
        """Return the first slot, from `now` on, in which `amount` more may be within the limit.

        An amount above the limit itself gets room once no other usage counts.
        """
        total, at = self.used(now), now
        if total + amount <= limit:
            return now
        most = max(0, limit - amount)
        overdue, overdue_until = self._overdue, now + OVERDUE_SLOTS
        for slot in self._slots:
            if total <= most:
                return at
            until = slot.number + SLOTS + 1
            if overdue and until > overdue_until:
                total, overdue, at = total - overdue, 0, overdue_until
                if total <= most:
                    return at
            total -= slot.amount + slot.expected
            at = until
        return at if total <= most else overdue_until

    def take(self, now: int, amount: int) -> None:
        """Add usage in slot `now`."""
        self._slot(now).amount += amount
        self._total += amount

    def expect(self, now: int, amount: int) -> Slot:
        """Add what a call that begins in slot `now` is expected to use; it counts until `settle`."""
        slot = self._slot(now)
        slot.expected += amount
        self._total += amount
        return slot

    def settle(self, slot: Slot, expected: int, used: int, now: int) -> None:
        """Replace what a call that began in a slot was expected to use; it ended in slot `now`."""
        self.used(now)
        slot.expected -= expected
        self._total -= expected
        if not slot.is_over:
            slot.amount += used
            self._total += used
            return
        self._overdue -= expected
        if used > 0:
            took = max(SLOTS, now - slot.number)  # the clock may have been set back
            self.take(now, -(-used * SLOTS // took))

    def _slot(self, now: int) -> Slot:
        if not self._slots or self._slots[-1].number < now:
            self._slots.append(Slot(now))
        return self._slots[-1]
