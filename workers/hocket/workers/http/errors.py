"""What can go wrong with a request, as typed errors; `component` is `http:<service>` where known."""

from hocket.schemas.errors import ErrorClass, HocketError


class HttpServiceInvalid(HocketError):
    """The HTTP service `{service}` is not configured correctly: `{field}`: {reason}. {cure}"""

    code = "http_service_invalid"
    error_class = ErrorClass.PERMANENT


class HttpServiceUnknown(HocketError):
    """There is no HTTP service `{service}` for this tenant; there are: {known}. Add it to the section
    `http_services` of the workers' configuration."""

    code = "http_service_unknown"
    error_class = ErrorClass.INVALID


class HttpAddressRefused(HocketError):
    """`{host}` is at a private address. Set `private: true` for the service if it is meant to be."""

    code = "http_address_refused"
    error_class = ErrorClass.PERMANENT


class HttpUnreachable(HocketError):
    """The service cannot be reached: {reason}. Check its `url`, and that it runs."""

    code = "http_unreachable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class HttpTimeout(HocketError):
    """The service did not answer within {timeout_ms} ms. Give the node a longer `timeout_ms`."""

    code = "http_timeout"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class HttpFailed(HocketError):
    """The service answered {status}: it could not do what was asked."""

    code = "http_failed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


class HttpRateLimited(HocketError):
    """The service answered {status}: too many requests."""

    code = "http_rate_limited"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class HttpNotAuthorized(HocketError):
    """The service answered {status}. Check the credentials in the service's `headers`."""

    code = "http_not_authorized"
    error_class = ErrorClass.PERMANENT


class HttpRejected(HocketError):
    """The service answered {status}. Correct the request, or list {status} in the node's `accept` to
    take the answer as it is."""

    code = "http_rejected"
    error_class = ErrorClass.INVALID


class HttpRedirected(HocketError):
    """The service answered {status}, a redirect, and none is followed. Configure the final URL."""

    code = "http_redirected"
    error_class = ErrorClass.INVALID


class HttpAnswerTooLarge(HocketError):
    """The answer has more than {limit_bytes} bytes. Ask for less, or raise `max_bytes` of the
    service."""

    code = "http_answer_too_large"
    error_class = ErrorClass.INVALID


class HttpAnswerUnreadable(HocketError):
    """The answer cannot be read: {reason}. A service must answer with JSON or text."""

    code = "http_answer_unreadable"
    error_class = ErrorClass.INVALID
