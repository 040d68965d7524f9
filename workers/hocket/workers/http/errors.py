"""The typed errors of a request; `component` is `http:<service>` if the service is known."""

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.workers.http.remote_errors import (
    RemoteAnswerInvalid,
    RemoteAnswerTooLarge,
    RemoteFailed,
    RemoteMisconfigured,
    RemoteNotAuthorized,
    RemoteNotConfigured,
    RemoteRateLimited,
    RemoteRefused,
    RemoteTimeout,
    RemoteUnreachable,
)


class HttpServiceInvalid(RemoteMisconfigured):
    """The HTTP service `{service}` is not configured correctly: `{field}`: {reason}. {cure}"""

    code = "http_service_invalid"


class HttpServiceUnknown(RemoteNotConfigured):
    """There is no HTTP service `{service}` for this tenant; its services: {known}. Add it to the
    section `http_services` of the workers' configuration."""

    code = "http_service_unknown"


class HttpAddressRefused(HocketError):
    """`{host}` is at a private address. Set `private: true` for the service if it is meant to be."""

    code = "http_address_refused"
    error_class = ErrorClass.PERMANENT


class HttpUnreachable(RemoteUnreachable):
    """The service cannot be reached: {reason}. Check its `url`, and that it runs."""

    code = "http_unreachable"


class HttpTimeout(RemoteTimeout):
    """The service did not answer within {timeout_ms} ms. Give the node a longer `timeout_ms`."""

    code = "http_timeout"


class HttpFailed(RemoteFailed):
    """The service answered {status}: it could not do what was asked."""

    code = "http_failed"


class HttpRateLimited(RemoteRateLimited):
    """The service answered {status}: too many requests."""

    code = "http_rate_limited"


class HttpNotAuthorized(RemoteNotAuthorized):
    """The service answered {status}. Check the credentials in the service's `headers`."""

    code = "http_not_authorized"


class HttpRejected(RemoteRefused):
    """The service answered {status}. Correct the request, or list {status} in the node's `accept` to
    take the answer as it is."""

    code = "http_rejected"


class HttpRedirected(RemoteRefused):
    """The service answered {status}, a redirect, which is not followed. Configure the final URL."""

    code = "http_redirected"


class HttpAnswerTooLarge(RemoteAnswerTooLarge):
    """The answer has more than {limit_bytes} bytes. Ask for less, or raise `max_bytes` of the
    service."""

    code = "http_answer_too_large"


class HttpAnswerUnreadable(RemoteAnswerInvalid):
    """The answer cannot be read: {reason}. A service must answer with JSON or text."""

    code = "http_answer_unreadable"
