"""Whether and when a failed attempt is tried again. Jitter is a hash of (run, step, attempt): a
replay waits exactly as long."""

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import fraction
from hocket.schemas.pipeline.node_parts import Retry

MAX_JITTER = 0.5
ASKED = "retryable"
"""The code of the error by which a handler asks for another attempt (`hocket.workers.errors`)."""
DEFAULT = Retry()
"""For a step whose handler asks for another attempt and whose node has no `retry`."""


def matches(patterns: tuple[str, ...], error: ErrorInfo) -> bool:
    """Tell whether an error is of one of the classes or codes."""
    return error.error_class in patterns or error.code in patterns


def backoff_ms(
    retry: Retry | None, error: ErrorInfo, *, run_id: str, step: str, attempt: int
) -> float | None:
    """Return how long to wait before the next attempt (ms), or None where there is none."""
    if retry is None and error.code == ASKED:
        retry = DEFAULT
    if retry is None or attempt >= retry.max_attempts or not matches(retry.on, error):
        return None
    base = min(retry.backoff_ms * retry.factor ** (attempt - 1), retry.max_backoff_ms)
    return base * (1.0 + MAX_JITTER * fraction(run_id, step, str(attempt)))
