"""How many dead letters a process writes of what anybody can send: a flood may not push the letters of
others out of their stream, which keeps the latest up to its bound.

Letters and bytes are taken from two buckets that fill again slowly: a user's mistake over a thousand
tasks is kept, a flood is not. Letters of accepted tasks, and sealed records of what was spent, are not
asked about here.
"""

from collections.abc import Callable
from time import monotonic

LETTERS = 1_000
LETTER_BYTES = 64 * 1024 * 1024
"""What may be kept at once."""
LETTERS_PER_S = 2.0
BYTES_PER_S = 16 * 1024
"""How fast there is room again; 1 GiB of letters comes together in 18 hours then."""


class LetterBudget:
    """Tells whether a message is still kept; `unkept` counts those that are not."""

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
        """Take a message of that size, or count it."""
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
