"""Whether and when a failed attempt is retried. Jitter is a hash of (run, step, attempt), so that a
replay waits exactly as long."""

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import fraction
from hocket.schemas.pipeline.handlers import HandlerNotHere
from hocket.schemas.pipeline.node_parts import Retry

PYTHON = "python"
MAX_JITTER = 0.5
ASKED = "retryable"
"""The code of the error by which a handler asks for another attempt (`hocket.workers.errors`)."""
DEFAULT = Retry()
"""The policy of a step whose handler asks for another attempt although its node has no `retry`."""


NOT_HERE = HandlerNotHere.code
"""The code of the error by which a worker passes a step on."""
TAKEN = "journal_taken"
"""The code of the error of a worker that found the step's journal with a later attempt
(`hocket.workers.runtime.journal.errors`)."""
STOPPED = "attempt_cancelled"
"""The code of the error of an attempt that its worker gave up when it was told to
(`hocket.workers.errors`)."""
ASKED_ANEW_MS = (50.0, 5_000.0)
"""The shortest and the longest time until a step that was passed on is handed out again."""
ASKED_ANEW_SHARE = 0.5
"""The next wait as a share of the time waited so far: the longer a step waits, the less often it is
handed out."""


def is_passed_on(error: ErrorInfo, node_type: str) -> bool:
    """Tell whether an attempt that ended so did nothing, and is to be handed out again: its worker
    does not know the handler, or an attempt that was handed out in a lost part of the log has the
    journal, which gives way to one that is handed out later."""
    return error.code == TAKEN or (error.code == NOT_HERE and node_type == PYTHON)


def matches(patterns: tuple[str, ...], error: ErrorInfo) -> bool:
    """Tell whether an error is of one of the classes or codes."""
    return error.error_class in patterns or error.code in patterns


def backoff_ms(
    retry: Retry | None, error: ErrorInfo, *, run_id: str, step: str, attempt: int, now_ms: float
) -> float | None:
    """Return how long to wait before the next attempt (ms), or None if there is none. An error that says
    when to try again (`retry_at_ms`: a service's `Retry-After`) is waited for at least until then."""
    if retry is None and error.code == ASKED:
        retry = DEFAULT
    if retry is None or attempt >= retry.max_attempts or not matches(retry.on, error):
        return None
    base = min(retry.backoff_ms * retry.factor ** (attempt - 1), retry.max_backoff_ms)
    own_ms = base * (1.0 + MAX_JITTER * fraction(run_id, step, str(attempt)))
    return own_ms if error.retry_at_ms is None else max(own_ms, error.retry_at_ms - now_ms)


def asked_anew_ms(waited_ms: float, *, run_id: str, step: str) -> float:
    """Return how long a step that a worker has passed on waits before it is handed out again (ms)."""
    shortest, longest = ASKED_ANEW_MS
    base = min(max(shortest, waited_ms * ASKED_ANEW_SHARE), longest)
    return base * (1.0 + MAX_JITTER * fraction(run_id, step, str(round(waited_ms))))
