"""Errors of asking a gateway: what it may answer, and that it may not answer at all."""

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError


class GatewayAway(HocketError):
    """No gateway answers: {reason}. Start one, or try again."""

    code = "gateway_away"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class GatewayRefused(HocketError):
    """{message}"""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(message=error.message)
        self._error = error

    def info(self) -> ErrorInfo:
        return self._error
