"""What can go wrong with a service that a step calls, over any protocol, and what that means for the
step. `errors.py` defines the messages and codes for HTTP services, `mcp/errors.py` for MCP servers, and
`nats/errors.py` for services over NATS."""

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError

MAX_REASON_CHARS = 300


def reason_of(error: BaseException) -> str:
    """Return the message of a library's error, or its name if it has none."""
    return shown_text(str(error) or type(error).__name__, MAX_REASON_CHARS)


class RemoteMisconfigured(HocketError):
    """A service is not configured correctly."""

    error_class = ErrorClass.PERMANENT


class RemoteNotConfigured(HocketError):
    """A service is not configured for a tenant."""

    error_class = ErrorClass.INVALID


class RemoteUnreachable(HocketError):
    """There is no connection to a service, or it was lost."""

    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class RemoteTimeout(HocketError):
    """A service did not answer in time."""

    error_class = ErrorClass.TIMEOUT
    retryable = True


class RemoteFailed(HocketError):
    """A service could not do what was asked."""

    error_class = ErrorClass.TRANSIENT
    retryable = True


class RemoteRateLimited(HocketError):
    """A service was asked too often."""

    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class RemoteNotAuthorized(HocketError):
    """A service does not accept our credentials."""

    error_class = ErrorClass.PERMANENT


class RemoteRefused(HocketError):
    """A service does not do what was asked."""

    error_class = ErrorClass.INVALID


class RemoteAnswerTooLarge(HocketError):
    """A service's answer is larger than allowed."""

    error_class = ErrorClass.INVALID


class RemoteAnswerInvalid(HocketError):
    """A service's answer is not what it must be."""

    error_class = ErrorClass.INVALID
