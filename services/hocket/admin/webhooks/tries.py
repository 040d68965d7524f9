"""Decides when a message is sent again, and when a webhook is disabled. Pure.

There are seven tries over 17.6 hours. Each pause is lengthened by up to a fifth, derived from message
and try, so that messages that failed together are not retried together.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hocket.schemas import ids

PAUSES_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""The pauses between one try and the next."""
JITTER = 0.2
MAX_RETRY_AFTER_S = 3_600.0
"""The longest time that a receiver may ask us to wait."""
DISABLED_AFTER_S = 3 * 86_400.0
"""A webhook is disabled once every try has failed for so long."""
GONE = 410


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a try: the status if there was an answer, and the error, empty if the message was
    accepted."""

    status: int | None = None
    error: str = ""
    retry_after_s: float = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether the receiver accepted the message."""
        return not self.error


def next_try(
    outcome: Outcome, webhook_id: str, message: str, attempts: int, now: datetime
) -> datetime | None:
    """Return when to send a message again after `attempts` tries, or None to give up."""
    if attempts > len(PAUSES_S) or outcome.status == GONE:
        return None
    share = ids.fraction("webhook", webhook_id, message, str(attempts))
    pause_s = PAUSES_S[attempts - 1] * (1 + JITTER * share)
    asked_s = min(outcome.retry_after_s, MAX_RETRY_AFTER_S)
    return now + timedelta(seconds=max(pause_s, asked_s))


def why_disabled(outcome: Outcome, failing_since: datetime | None, now: datetime) -> str:
    """Return why a webhook has to be disabled after a try; empty if it does not."""
    if outcome.is_taken:
        return ""
    if outcome.status == GONE:
        return "it answered 410: it is gone"
    if failing_since is None or (now - failing_since).total_seconds() < DISABLED_AFTER_S:
        return ""
    return f"every try failed since {failing_since.isoformat(timespec='seconds')}"
