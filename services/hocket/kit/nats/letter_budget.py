"""A limit on the dead letters that a process writes for messages that anybody can send.

A flood must not push the letters of others out of the stream, which keeps only the latest. Letters and
bytes are taken from two token buckets that refill slowly: a user's mistake in a thousand tasks is kept,
a flood is not. Letters of accepted tasks, and sealed records of what was spent, are not subject to this
limit.
"""

from collections.abc import Callable
from time import monotonic

LETTERS = 1_000
LETTER_BYTES = 64 * 1024 * 1024
"""The sizes of the two buckets."""
LETTERS_PER_S = 2.0
BYTES_PER_S = 16 * 1024
"""How fast the buckets refill; at this rate, 1 GiB of letters takes 18 hours."""


class LetterBudget:
    """Decides whether a message is kept as a dead letter; `unkept` counts those that are not."""

    def __init__(
        self, clock_s: Callable[[], float] = monotonic, *, max_bytes: int = LETTER_BYTES
    ) -> None:
        self._clock_s = clock_s
        self._at_s = clock_s()
        self._max_bytes = max_bytes
        self._letters = float(LETTERS)
        self._bytes = float(max_bytes)
        self.unkept = 0

    def takes(self, size_bytes: int) -> bool:
        """Spend the budget on a message of that size and return True; without enough left, count the
        message and return False."""
        now_s = self._clock_s()
        passed_s, self._at_s = now_s - self._at_s, now_s
        self._letters = min(self._letters + passed_s * LETTERS_PER_S, LETTERS)
        self._bytes = min(self._bytes + passed_s * BYTES_PER_S, self._max_bytes)
        if self._letters < 1 or self._bytes < size_bytes:
            self.unkept += 1
            return False
        self._letters -= 1
        self._bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return what was spent on a message that could not be kept, and will come again."""
        self._letters = min(self._letters + 1, LETTERS)
        self._bytes = min(self._bytes + size_bytes, self._max_bytes)
