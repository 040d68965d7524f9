"""The errors between a process and NATS."""

from hocket.schemas.errors import ErrorClass, HocketError


class BusUnavailable(HocketError):
    """NATS did not answer ({reason}). Check that it runs and that NATS_URL is right: `hocket doctor`."""

    code = "bus_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class PublishRefused(HocketError):
    """The stream behind `{subject}` refused a message: {reason}. Check that the streams exist:
    `hocket doctor`."""

    code = "publish_refused"
