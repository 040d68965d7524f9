"""How fast engines generate, learnt from complete answers, to estimate how much a stopped one had
written.

For each backend the latest answers are kept, modelled as latency = wait + tokens * time per token.
The time per token is the median slope over all pairs of answers (Theil-Sen); the wait is the lower
third of the residuals. Anything that delays an answer (a busy gateway, a queue, a lost packet) only
makes it later, often half of the answers at once, and would make the engine look slower than it is.
Too few answers cannot tell the wait. What was learnt is kept over restarts
(`accounting/cost_history.py`). Pure.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import combinations

from hocket.gateway.core.routing.history import Kind

LEAST_ANSWERS = 8
"""With fewer answers the wait is taken to be 0."""
KEPT = 48
"""The number of latest answers kept per backend."""
MAX_BACKENDS = 1_000
LEAST_SPREAD = 0.1
"""As a fraction of the mean length: answers that vary less cannot tell the wait from the speed."""


class DecodeSpeeds:
    """Learns from answers whose engine metered them."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[tuple[float, float]]] = {}

    def learn(self, backend: str, tokens: float, latency_ms: float) -> None:
        """Add an answer of `tokens` tokens; for several answers at once, the tokens of one."""
        if tokens <= 0 or latency_ms <= 0:
            return
        answers = self._answers.pop(backend, None)
        if answers is None:
            answers = deque(maxlen=KEPT)
        self._answers[backend] = answers  # most recently used last
        if len(self._answers) > MAX_BACKENDS:
            del self._answers[next(iter(self._answers))]
        answers.append((tokens, latency_ms))

    def tokens_within(self, backend: str, elapsed_ms: float) -> float | None:
        """Return how many tokens an engine has written after `elapsed_ms`;
        None if too little is known."""
        answers = self._answers.get(backend)
        if not answers:
            return None
        ms_of_one = _lower_third([ms / tokens for tokens, ms in answers])
        wait_ms = 0.0
        if len(answers) >= LEAST_ANSWERS and _differ([tokens for tokens, _ in answers]):
            slope = _median_slope(answers)
            if 0 < slope <= ms_of_one:  # the wait cannot be negative
                ms_of_one = slope
                wait_ms = max(_lower_third([ms - slope * tokens for tokens, ms in answers]), 0)
        return max(elapsed_ms - wait_ms, 0.0) / ms_of_one

    def count(self, kind: Kind) -> int:
        """Return how many answers of a backend are known."""
        return len(self._answers.get(_backend(kind), ()))

    def kept(self, kind: Kind) -> dict[str, list[float]]:
        """Return the known answers of a backend for `restore`:
        tokens and latency (ms) of each, flattened."""
        answers = self._answers.get(_backend(kind), ())
        return {"ratios": [one for answer in answers for one in answer]}

    def restore(self, kind: Kind, kept: Mapping[str, Sequence[float]]) -> None:
        """Add the answers that `kept` returned for a backend."""
        ratios = kept["ratios"]
        for tokens, latency_ms in zip(ratios[::2], ratios[1::2], strict=False):
            self.learn(_backend(kind), tokens, latency_ms)


def kind_of(backend: str) -> Kind:
    """Return the kind under which a backend's answers are kept."""
    return (backend, "", "")


def _backend(kind: Kind) -> str:
    return kind[0]


def _lower_third(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 3]


def _median_slope(answers: Sequence[tuple[float, float]]) -> float:
    return statistics.median(
        (one_ms - other_ms) / (one - other)
        for (one, one_ms), (other, other_ms) in combinations(answers, 2)
        if one != other
    )


def _differ(lengths: Sequence[float]) -> bool:
    return statistics.pstdev(lengths) > LEAST_SPREAD * statistics.fmean(lengths)
