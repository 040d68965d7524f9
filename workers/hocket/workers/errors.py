"""Errors of workers, including the one that handlers raise to be retried (`Retryable`)."""

from hocket.schemas.errors import ErrorClass, HocketError


class Retryable(HocketError):
    """The step asks to be retried: {reason}."""

    # three attempts, unless its node's `retry` says otherwise

    code = "retryable"
    error_class = ErrorClass.TRANSIENT
    retryable = True

    def __init__(self, reason: str = "no reason given", **fields: object) -> None:
        super().__init__(reason=reason, **fields)


class AttemptTimeout(HocketError):
    """The attempt did not end within {timeout_ms} ms. Give the node a longer `timeout_ms`, or the
    pipeline a longer `slo_ms`."""

    code = "attempt_timeout"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class ModelTooSlow(HocketError):
    """Model `{model}` had not answered when the step's time was up. Give the node a longer
    `timeout_ms` or the pipeline a longer `slo_ms`; `hocket runs show` shows where the call waited."""

    code = "model_too_slow"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class DeadlinePassed(HocketError):
    """The step arrived {late_ms} ms after its latest useful finish, by the clock of its worker's
    machine, and was not run. If it had not waited for a worker, look at that clock."""

    code = "deadline_passed"
    error_class = ErrorClass.TIMEOUT


class AttemptCancelled(HocketError):
    """The attempt was cancelled: {reason}."""

    code = "attempt_cancelled"
    error_class = ErrorClass.CANCELLED


class OutputTooLarge(HocketError):
    """The step's output makes a message of {size_bytes} bytes; the limit is {limit_bytes}. Return
    less, or configure a blob store so that large values travel by reference."""

    code = "output_too_large"
    error_class = ErrorClass.INVALID


class OutputNotJson(HocketError):
    """The step's output is not JSON: {reason}. Return dicts, lists, text, numbers, booleans, None or
    pydantic models."""

    code = "output_not_json"
    error_class = ErrorClass.INVALID


class BlobUnresolved(HocketError):
    """`{field}` refers to the blob `{blob}`, which cannot be used: {reason}"""

    code = "blob_unresolved"
    error_class = ErrorClass.INVALID


class StepMalformed(HocketError):
    """The step's message cannot be read: {reason}. It is kept unchanged in the dead letters."""

    code = "step_malformed"
    error_class = ErrorClass.INVALID


class StepUndeliverable(HocketError):
    """The step was delivered {deliveries} times, but no worker finished it. It is kept in the dead
    letters; look for a handler that kills its process."""

    code = "step_undeliverable"


class StepEndsWorker(StepUndeliverable):
    """The step was delivered {deliveries} times, and its worker ended {deaths} times while it ran this
    step alone. It is kept in the dead letters; look for what in its handler ends the process
    (`os._exit`, a crash, its memory)."""


class NodeTypeUnserved(HocketError):
    """This worker does not run `{type}` nodes. Start one that does: `python -m hocket.workers`."""

    code = "node_type_unserved"
    error_class = ErrorClass.INVALID


class WorkerOverrun(HocketError):
    """More than half of this worker's slots are held by functions that did not end when their time was
    up, so it restarts. Look for `slot_held` in its log, and put a timeout on what they wait for."""

    code = "worker_overrun"
    error_class = ErrorClass.UNAVAILABLE


class HandlerUnknown(HocketError):
    """The handler `{handler}` cannot be used: {reason}. Name an importable `module:function`."""

    code = "handler_unknown"
    error_class = ErrorClass.INVALID


class ModelReplyInvalid(HocketError):
    """The model's answer does not fit the response schema: {reason}."""

    code = "model_reply_invalid"
    error_class = ErrorClass.INVALID


class ModelReplyCut(ModelReplyInvalid):
    """The model's answer was cut off at {limit}, before its JSON was complete. Raise {bound}, or ask for
    a shorter answer."""

    code = "model_reply_cut"


class GatewayUnavailable(HocketError):
    """The inference gateway did not answer: {reason}. Check that `hocket.gateway` runs."""

    code = "gateway_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True
