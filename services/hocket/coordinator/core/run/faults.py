"""Errors of runs that cannot go on, and the text to report for an exception."""

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.errors import ErrorInfo, HocketError

MAX_REASON_CHARS = 1_000


class EventNotApplicable(HocketError):
    """The event `{kind}` could not be applied to the run: {reason}. Check what the pipeline's
    expressions make of this input; `hocket dlq list --source log` has the event."""

    code = "event_not_applicable"


class MessageNotSendable(HocketError):
    """A value cannot be sent as JSON: {reason}. Look for half a surrogate pair in text, and for values
    that are nested very deeply."""

    code = "message_not_sendable"


class RunNotStorable(HocketError):
    """Postgres refuses what the run contains: {reason}. Look for text with U+0000 or half a surrogate
    pair, numbers out of range, and very large or very deep values."""

    code = "run_not_storable"


class RunNotRestorable(HocketError):
    """The run could not be read back from Postgres: {reason}. Apply the pipeline again and retry the
    run: `hocket runs retry {run_id}`."""

    code = "run_not_restorable"


def unsendable(error: Exception) -> ErrorInfo:
    """Return the error info to report for a message that cannot be sent."""
    if isinstance(error, HocketError):
        return error.info()
    return MessageNotSendable(reason=reason_of(error)).info()


def reason_of(error: BaseException) -> str:
    """Return an exception's type and message as text that can be stored, cut to MAX_REASON_CHARS."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # its own `__str__` raises
        text = type(error).__name__
    return str(stored_text(text, limit=MAX_REASON_CHARS))
