"""The errors raised by the client's calls."""

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.rest import RunDetail


class ApiUnreachable(HocketError):
    """The API at {url} did not answer: {reason}. Check the address, and whether the platform runs."""

    code = "api_unreachable"
    error_class = ErrorClass.TRANSIENT
    retryable = True


class AnswerUnreadable(HocketError):
    """The API at {url} answered {status} with something that does not come from Hocket: {reason}.
    Check the address, and that client and platform are the same release."""

    code = "answer_unreadable"


class RequestRefused(HocketError):
    """{code}: {message}

    `status` is the HTTP status, `error` the typed error, with the field at fault and what to do.
    """

    def __init__(self, status: int, error: ErrorInfo) -> None:
        super().__init__(code=error.code, message=error.message)
        self.status = status
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the API's own error."""
        return self.error


class RunNotSucceeded(HocketError):
    """Run {run_id} ended as {status}: {reason}

    `run` is the run as it ended, with its error.
    """

    code = "run_not_succeeded"

    def __init__(self, run: RunDetail) -> None:
        reason = "no error is known" if run.error is None else run.error.message
        super().__init__(run_id=run.run_id, status=run.status, reason=reason)
        self.run = run
