"""When a message is sent again, and when a webhook is given up. Pure.

Seven tries over 17.6 hours; each pause is longer by up to a fifth, which follows from message and try,
so that what failed together does not come back together.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hocket.schemas import ids

PAUSES_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Between one try and the next."""
JITTER = 0.2
MAX_RETRY_AFTER_S = 3_600.0
"""As long as a receiver may ask us to wait."""
DISABLED_AFTER_S = 3 * 86_400.0
"""A webhook at which every try failed for so long is disabled."""
GONE = 410


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a try: a status, where there was an answer, and what was wrong with it, nothing where
    it was taken."""

    status: int | None = None
    error: str = ""
    retry_after_s: float = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether the receiver has it."""
        return not self.error


def next_try(
    outcome: Outcome, webhook_id: str, message: str, attempts: int, now: datetime
) -> datetime | None:
    """Return when a message is sent again that was sent `attempts` times; None: no more."""
    if attempts > len(PAUSES_S) or outcome.status == GONE:
        return None
    share = ids.fraction("webhook", webhook_id, message, str(attempts))
    pause_s = PAUSES_S[attempts - 1] * (1 + JITTER * share)
    asked_s = min(outcome.retry_after_s, MAX_RETRY_AFTER_S)
    return now + timedelta(seconds=max(pause_s, asked_s))


def why_disabled(outcome: Outcome, failing_since: datetime | None, now: datetime) -> str:
    """Return why a webhook is disabled after a try, nothing where it is not."""
    if outcome.is_taken:
        return ""
    if outcome.status == GONE:
        return "it answered 410: it is gone"
    if failing_since is None or (now - failing_since).total_seconds() < DISABLED_AFTER_S:
        return ""
    return f"every try failed since {failing_since.isoformat(timespec='seconds')}"
