"""The jobs decoding together, and when each gets its tokens.

They share one clock that counts the tokens each of them has been given. It runs at the rate of one
sequence, or slower if the batch is at its limit. A job ends when the clock has advanced by its
length, so an event costs only the logarithm of the batch size.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from hocket.emulator.core.job import Job
from hocket.emulator.core.profile import EngineProfile

_ROUNDING = 1e-6
"""Tolerance for float rounding, so that a token due at a time is there at that time."""


@dataclass(slots=True)
class _Decode:
    job: Job
    began: float
    """The token clock at its first token."""


class Batch:
    """The decoding jobs of an engine."""

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        self._decoding: dict[str, _Decode] = {}
        self._ends: list[tuple[float, str]] = []
        self._tokens_given = 0.0

    def __len__(self) -> int:
        return len(self._decoding)

    def jobs(self) -> Iterator[Job]:
        return (decode.job for decode in self._decoding.values())

    def add(self, job: Job) -> None:
        """Add a job whose first token has been generated."""
        self._decoding[job.job_id] = _Decode(job, self._tokens_given)
        heapq.heappush(self._ends, (self._tokens_given + job.output_tokens - 1, job.job_id))

    def drop(self, job_id: str) -> None:
        """Forget a job if it is decoding; its entry in `_ends` is skipped later."""
        self._decoding.pop(job_id, None)

    def pop_ended(self) -> str:
        """Remove the job that ends next, and return its id."""
        end = self._next_end()
        assert end is not None, "an event has a cause"
        heapq.heappop(self._ends)
        del self._decoding[end[1]]
        return end[1]

    def ends_in_ms(self) -> float | None:
        """Return how long until the next job ends at the current rate; None if none is decoding."""
        end = self._next_end()
        if end is None:
            return None
        return max(end[0] - self._tokens_given, 0.0) / self._token_rate_per_ms()

    def emitted(self, job_id: str) -> int:
        """Return the tokens that a decoding job has been given."""
        decode = self._decoding.get(job_id)
        if decode is None:
            return 0
        given = math.floor(self._tokens_given - decode.began + _ROUNDING)
        return min(1 + given, decode.job.output_tokens)

    def next_token_in_ms(self, job_id: str) -> float | None:
        """Return how long until a decoding job gets its next token at the current rate; None if it
        has all its tokens or is not decoding."""
        decode = self._decoding.get(job_id)
        if decode is None or (emitted := self.emitted(job_id)) >= decode.job.output_tokens:
            return None
        left = decode.began + emitted - self._tokens_given
        return max(left, 0.0) / self._token_rate_per_ms()

    def let_pass(self, passed_ms: float) -> None:
        """Give out the tokens of a period in which no job ends."""
        end = self._next_end()
        if end is not None:
            given = self._tokens_given + passed_ms * self._token_rate_per_ms()
            self._tokens_given = min(given, end[0])  # an end is an event and must not be skipped

    def _next_end(self) -> tuple[float, str] | None:
        while self._ends and self._ends[0][1] not in self._decoding:
            heapq.heappop(self._ends)
        return self._ends[0] if self._ends else None

    def _token_rate_per_ms(self) -> float:
        share = self._profile.batch_tokens_per_s / len(self._decoding)
        return min(self._profile.decode_tokens_per_s, share) / 1000
