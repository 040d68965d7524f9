"""How fast engines write whole answers: what a stopped one had written is told by when it was stopped.

For each backend the latest answers are kept: latency = wait + tokens * time of one. The time of one is
the slope by least squares, the wait the median of what is left, so that single slow answers do not
count. Pure.
"""

import statistics
from collections import deque

LEAST_ANSWERS = 8
"""Fewer tell nothing."""
KEPT = 48
"""Answers of a backend that count."""
MAX_BACKENDS = 1_000
LEAST_SPREAD = 0.1
"""Of the mean length: answers that differ by less do not tell the wait from the speed."""


class DecodeSpeeds:
    """Learns from answers whose engine metered them."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[tuple[float, float]]] = {}

    def learn(self, backend: str, tokens: float, latency_ms: float) -> None:
        """Take in an answer of so many tokens; of several at once, the tokens of one."""
        if tokens <= 0 or latency_ms <= 0:
            return
        answers = self._answers.pop(backend, None)
        if answers is None:
            answers = deque(maxlen=KEPT)
        self._answers[backend] = answers  # the latest one is the last
        if len(self._answers) > MAX_BACKENDS:
            del self._answers[next(iter(self._answers))]
        answers.append((tokens, latency_ms))

    def tokens_within(self, backend: str, elapsed_ms: float) -> float | None:
        """Return how many tokens an engine has written after so long; None where too little is known."""
        answers = self._answers.get(backend)
        if answers is None or len(answers) < LEAST_ANSWERS:
            return None
        lengths, took_ms = zip(*answers, strict=True)
        ms_of_one = statistics.median(ms / tokens for tokens, ms in answers)
        wait_ms = 0.0
        if statistics.pstdev(lengths) > LEAST_SPREAD * statistics.fmean(lengths):
            slope = statistics.linear_regression(lengths, took_ms).slope
            if 0 < slope <= ms_of_one:  # no engine takes less than no time to begin
                ms_of_one = slope
                wait_ms = max(statistics.median(ms - slope * tokens for tokens, ms in answers), 0)
        return max(elapsed_ms - wait_ms, 0.0) / ms_of_one
