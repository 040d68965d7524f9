"""Typed errors, as exceptions and as data.

An exception's docstring is its message and its cure; `{names}` in it are filled from keyword fields.
Handlers raise errors of their own as they raise any exception: with a text, or without a docstring.
`ErrorInfo` is the same error as data: it is carried in messages, stored in Postgres, returned in REST
bodies, and is what a graph branches on (`retry.on`, `fallback.on`).
"""

import inspect
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hocket.schemas.checks.bounded import Milliseconds, Moment, StoredText


class ErrorClass(StrEnum):
    """The general kind of an error; `retry.on` and `fallback.on` name these or exact codes."""

    TRANSIENT = "transient"
    """A temporary failure: connection lost, 5xx, serialization failure."""
    TIMEOUT = "timeout"
    """The attempt timed out."""
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    """A component is down or its breaker is open; see `retry_at_ms` and `alternatives`."""
    INVALID = "invalid"
    """The input or the output was refused; retrying unchanged cannot help."""
    BUDGET = "budget"
    PERMANENT = "permanent"
    CANCELLED = "cancelled"


class ErrorInfo(BaseModel):
    """An error as data.

    `component` names what failed (`worker`, `gateway`, `sql:<database>`, a backend); `details` holds
    further plain JSON, for example a breaker's state or the place in a document.
    """

    model_config = ConfigDict(frozen=True)

    code: StoredText
    message: StoredText
    error_class: ErrorClass = ErrorClass.PERMANENT
    retryable: bool = False
    field: StoredText | None = None
    component: StoredText | None = None
    state: StoredText | None = None
    retry_at_ms: Moment | None = None
    alternatives: tuple[str, ...] = ()
    slack_ms: Milliseconds | None = None
    budget_left_usd: StoredText | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class HocketError(Exception):
    """Hocket encountered an error: {reason}."""

    code: ClassVar[str] = "hocket_error"
    error_class: ClassVar[ErrorClass] = ErrorClass.PERMANENT
    retryable: ClassVar[bool] = False

    def __init__(self, text: object = None, /, **fields: Any) -> None:
        self.fields = fields
        super().__init__(_text_of(type(self), fields) if text is None else str(text))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with all that it says: other processes make it anew from that, not from the
        arguments of its class, which are not kept."""
        return _restored, (type(self), self.args, self.__dict__)

    def info(self) -> ErrorInfo:
        """Return this error as data; fields that `ErrorInfo` lacks go to `details`."""
        known = {k: v for k, v in self.fields.items() if k in _INFO_FIELDS}
        details = {k: _plain(v) for k, v in self.fields.items() if k not in _INFO_FIELDS}
        return ErrorInfo(
            code=self.code,
            message=str(self),
            error_class=self.error_class,
            retryable=self.retryable,
            details=details,
            **known,
        )


def _text_of(kind: type[HocketError], fields: Mapping[str, Any]) -> str:
    """Return the first paragraph of an error's docstring with its fields filled in."""
    if kind.__doc__ is None:
        fields = {"reason": kind.__name__, **fields}
    text = inspect.cleandoc(kind.__doc__ or HocketError.__doc__ or "")
    text = " ".join(text.split("\n\n", 1)[0].split())
    try:
        return text.format(**fields)
    except (
        LookupError,
        ValueError,
        AttributeError,
    ):  # braces that a handler's author meant as such
        return text


def _restored(
    kind: type[HocketError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> HocketError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


MAX_OTHERS = 9
"""The most further faults of a document that an error's text lists after the first."""
_INFO_FIELDS = frozenset(
    {
        "field",
        "component",
        "state",
        "retry_at_ms",
        "alternatives",
        "slack_ms",
        "budget_left_usd",
    }
)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


class DocumentInvalid(HocketError):
    """`{field}` is not valid: {reason}. {cure}"""

    error_class = ErrorClass.INVALID

    def __init__(
        self, *, others: Sequence[Mapping[str, str]] = (), more: int = 0, **fields: Any
    ) -> None:
        """`others` are the further faults, each a field, a reason and a cure; `more` only counts."""
        further = {"others": others} if others else {}
        super().__init__(**fields, **further, **({"more": more} if more else {}))
        told = [f"`{one['field']}`: {one['reason']}. {one['cure']}" for one in others[:MAX_OTHERS]]
        if len(others) + more > MAX_OTHERS:
            told.append(f"And {len(others) + more - MAX_OTHERS:,} more.")
        if told:
            self.args = (" ".join([str(self), "Also wrong:", *told]),)


class InvalidInput(DocumentInvalid):
    """`{field}` is not valid: {reason}. {cure}"""

    code = "invalid_input"


class PayloadTooLarge(HocketError):
    """The payload has {size_bytes} bytes; the limit is {limit_bytes}. Keep large values where the steps
    can read them (a database, a file server), and pass their address."""

    code = "payload_too_large"
    error_class = ErrorClass.INVALID


class HeldTooLong(HocketError):
    """The step waited for a slot until its run was expected to miss its deadline. Nobody sees this: the
    run decides what becomes of the step."""

    code = "held_too_long"
    error_class = ErrorClass.TIMEOUT


class PipelineUnknown(HocketError):
    """There is no pipeline `{pipeline}` for tenant `{tenant}`. Apply it first:
    `hocket pipeline apply FILE`."""

    code = "pipeline_unknown"
    error_class = ErrorClass.INVALID


class PipelineArchived(HocketError):
    """The pipeline `{pipeline}` of tenant `{tenant}` is archived and accepts no new runs. Unarchive it
    first: `hocket pipeline unarchive {pipeline}`."""

    code = "pipeline_archived"
    error_class = ErrorClass.INVALID


class IdempotencyKeyReused(HocketError):
    """`{field}` already names run `{run_id}` of pipeline `{pipeline}`. Use a new key for another
    task."""

    code = "idempotency_key_reused"
    error_class = ErrorClass.INVALID


class RunUnknown(HocketError):
    """There is no run `{run_id}`. `hocket runs list` shows the existing runs."""

    code = "run_unknown"
    error_class = ErrorClass.INVALID


class RunNotRestored(RunUnknown):
    """There is no run `{run_id}`. This platform was restored at {restored_at} from a backup of
    {backup_at}: what it accepted in between is not here. Submit the task again with its idempotency
    key."""


class MalformedTask(HocketError):
    """The body published on `{subject}` is not a JSON object: {reason}. Publish one JSON object; it
    is the pipeline's input."""

    code = "malformed_task"
    error_class = ErrorClass.INVALID
