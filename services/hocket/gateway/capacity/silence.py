"""How long a replica says nothing to a call, and to all of its calls.

A call that is answered in one piece hears nothing until its end. A stream may be long, and its replica
works as long as pieces come: it is judged by its longest silence. One that writes much slower than
usual is judged by the time that it has fallen behind, as if it had been silent for so long.
"""

import asyncio

from hocket.gateway.backends.protocol import Chunk, Chunks

LEAST_PIECES = 8
"""The number of pieces after the first from which a stream tells how fast its replica writes."""


class LastHeard:
    """When a replica last said anything, in the time of the event loop."""

    __slots__ = ("heard_at_s",)

    def __init__(self) -> None:
        self.heard_at_s = float("-inf")


class Silence:
    """The silence of one call, in the time of the event loop.

    While the call's reader takes a piece, the replica has to wait, and is not silent.
    """

    __slots__ = (
        "_is_taken",
        "_last",
        "_longest_s",
        "_pieces",
        "_writing_s",
        "in_pieces",
        "since_s",
    )

    def __init__(self, last: LastHeard) -> None:
        self.since_s = _now_s()
        self.in_pieces = False
        """Whether the call is answered in pieces."""
        self._longest_s = 0.0
        self._pieces = 0
        self._writing_s = 0.0
        """How long the replica took for all pieces but the first."""
        self._is_taken = False
        self._last = last

    def broken_by(self, taker: Chunks) -> Chunks:
        """Return a taker that notes each piece before it is taken."""
        self.since_s, self.in_pieces = _now_s(), True

        async def heard(chunk: Chunk) -> None:
            now_s = _now_s()
            gap_s = now_s - self.since_s
            self._longest_s = max(self._longest_s, gap_s)
            if self._pieces:
                self._writing_s += gap_s
            self._pieces += 1
            self._last.heard_at_s = now_s
            self._is_taken = True
            try:
                await taker(chunk)
            finally:
                self.since_s, self._is_taken = _now_s(), False

        return heard

    @property
    def is_of_all(self) -> bool:
        """Whether the replica has been silent to all its calls since this silence began."""
        return self._last.heard_at_s <= self.since_s

    def end(self) -> None:
        """End it with the answer."""
        self._last.heard_at_s = _now_s()

    def lasts_s(self) -> float:
        """Return how long it lasts already."""
        return 0.0 if self._is_taken else _now_s() - self.since_s

    def longest_ms(self, *, failed: bool) -> float:
        """Return the longest silence of a call in pieces that has ended; the one at its end counts if it
        failed."""
        last_s = self.lasts_s() if failed else 0.0
        return max(self._longest_s, last_s) * 1000

    @property
    def pace_ms(self) -> float | None:
        """The time that the replica took for each piece after the first; None if there were few."""
        pieces = self._pieces - 1
        return self._writing_s / pieces * 1000 if pieces >= LEAST_PIECES else None

    def behind_ms(self, slow_pace_ms: float | None, *, writes: bool) -> float:
        """Return how much longer the replica took than it had with `slow_pace_ms` for each piece after
        the first (None: unknown, and 0 is returned). If it still `writes`, the present silence counts.

        A few pieces may be large ones, such as whole calls of tools: they teach no pace, and are judged
        by none.
        """
        if slow_pace_ms is None or self._pieces - 1 < LEAST_PIECES:
            return 0.0
        taken_s = self._writing_s + (self.lasts_s() if writes else 0.0)
        return max(taken_s * 1000 - slow_pace_ms * (self._pieces - 1), 0.0)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
