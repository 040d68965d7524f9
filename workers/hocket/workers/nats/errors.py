"""The typed errors of a request over NATS; `component` is `nats:<service>`."""

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


class NatsServiceInvalid(RemoteMisconfigured):
    """The NATS service `{nats_service}` is not configured correctly: `{field}`: {reason}. {cure}"""

    code = "nats_service_invalid"


class NatsServiceUnknown(RemoteNotConfigured):
    """There is no NATS service `{nats_service}` for this tenant; its services: {known}. Add it to the
    section `nats_services` of the workers' configuration."""

    code = "nats_service_unknown"


class NatsUnreachable(RemoteUnreachable):
    """None of the service's servers can be reached: {reason}. Check its `servers`, and that they run."""

    code = "nats_unreachable"


class NatsNoResponders(RemoteUnreachable):
    """Nobody answers on `{subject}`. Start the service, or correct its `subject`."""

    code = "nats_no_responders"


class NatsTimeout(RemoteTimeout):
    """The service did not answer within {timeout_ms} ms. Give the node a longer `timeout_ms`."""

    code = "nats_timeout"


class NatsFailed(RemoteFailed):
    """The service answered with the error {status}: {reason}"""

    code = "nats_failed"


class NatsRateLimited(RemoteRateLimited):
    """The service answered with the error {status}: {reason}"""

    code = "nats_rate_limited"


class NatsNotAuthorized(RemoteNotAuthorized):
    """Not allowed ({status}): {reason} Check the service's credentials."""

    code = "nats_not_authorized"


class NatsRejected(RemoteRefused):
    """The service answered with the error {status}: {reason} Correct the request."""

    code = "nats_rejected"


class NatsAnswerTooLarge(RemoteAnswerTooLarge):
    """The answer has more than {limit_bytes} bytes. Ask for less, or raise `max_bytes` of the
    service."""

    code = "nats_answer_too_large"


class NatsAnswerUnreadable(RemoteAnswerInvalid):
    """The answer cannot be read: {reason}. A service must answer with JSON, or with text under a
    `content-type` that says so."""

    code = "nats_answer_unreadable"
