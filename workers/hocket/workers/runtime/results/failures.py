"""Turns a handler's exception into a typed error, even if inspecting the exception raises. Pure."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from traceback import walk_tb
from types import TracebackType
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from hocket.kit.logs.hidden_secrets import without_secrets
from hocket.schemas.checks.redaction import without_url_passwords
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.workers.errors import Retryable
from hocket.workers.runtime.journal.errors import JournalFault
from hocket.workers.runtime.results.encoding import MAX_ERROR_TEXT_CHARS, plain

MAX_FRAMES = 5
MAX_CAUSES = 5
"""How many errors of a chain of causes are examined."""
MAX_GROUPED = 100
"""How many errors of an exception group are examined."""
MAX_NAME_CHARS = 200
MAX_DETAIL_CHARS = 16_000
COMPONENT = "worker"


def error_info(error: BaseException) -> ErrorInfo:
    """Return a HocketError's own data; for other errors `handler_failed`, with type and last frames.

    Connection errors, timeouts and OS errors are transient, everything else is permanent. A group of
    exceptions, as `asyncio.TaskGroup` raises, is what the error in it is that decides. Never raises: an
    error that cannot be read is reported as such. Secrets of the process are hidden: a service may
    repeat the credentials that it refuses."""
    try:
        if isinstance(error, BaseExceptionGroup):
            return _hidden(_decisive(error) or _handler_failed(error))
        return _hidden(_single_info(error))
    except BaseException as fault:
        return ErrorInfo(
            code="handler_failed",
            message="The handler failed with an exception that cannot be read: reading it raised"
            f" {_name(type(fault))}.",
            component=COMPONENT,
            details={"exception": _name(type(error))},
        )


def _hidden(info: ErrorInfo) -> ErrorInfo:
    """Return an error whose message and details are without the secrets of this process."""
    try:
        details = to_json(info.details).decode()
    except ValueError:  # halves of surrogate pairs, which are replaced when it is sent
        return info
    message, shown = without_secrets(info.message), without_secrets(details)
    if (message, shown) == (info.message, details):
        return info
    return info.model_copy(update={"message": message, "details": from_json(shown)})


def last_frames(trace: TracebackType | None) -> list[str]:
    """Return the innermost frames of a traceback, outermost first, as `file:line function`."""
    frames = deque(walk_tb(trace), maxlen=MAX_FRAMES)
    return [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}"[:MAX_ERROR_TEXT_CHARS]
        for frame, line in frames
    ]


def _single_info(error: BaseException) -> ErrorInfo:
    if isinstance(error, HocketError):
        return _own_info(error)
    return _told_within(error) or _handler_failed(error)


def _decisive(group: BaseExceptionGroup[BaseException]) -> ErrorInfo | None:
    """Return the first error in a group that a retry would not help against, or else the first one. A
    journal that cannot be used comes before all others, because nothing else could be kept."""
    errors = list(islice(_grouped(group), MAX_GROUPED))
    for error in errors:
        if isinstance(error, JournalFault):
            return _own_info(error)
    infos = [_single_info(error) for error in errors]
    return next((info for info in infos if not info.retryable), infos[0] if infos else None)


def _grouped(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it, in order."""
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += reversed(error.exceptions)
        else:
            yield error


def _handler_failed(error: BaseException) -> ErrorInfo:
    transient = isinstance(error, OSError | TimeoutError | ConnectionError)
    kind = type(error)
    name = _name(kind)
    text = _text(error)[:MAX_ERROR_TEXT_CHARS]
    return ErrorInfo(
        code="handler_failed",
        message=f"The handler failed with {name}: {text}"
        if text
        else f"The handler failed: {name}",
        error_class=ErrorClass.TRANSIENT if transient else ErrorClass.PERMANENT,
        retryable=transient,
        component=COMPONENT,
        details={
            "exception": _name(kind, with_module=True),
            "frames": last_frames(error.__traceback__),
        },
    )


def _told_within(error: BaseException) -> ErrorInfo | None:
    """Return the Hocket error that a library's error wraps, if any. OpenAI's client has it in the body
    of the error that it raises, and frameworks raise their own errors from that one."""
    for one in _chain(error):
        if isinstance(one, JournalFault):
            return _own_info(one)
        body = getattr(one, "body", None)
        if type(body) is not dict:
            continue
        told = body.get("hocket")
        if type(told) is dict:
            try:
                given = ErrorInfo.model_validate({"message": str(body.get("message")), **told})
            except ValidationError:
                return None
            return _checked(given)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__


def _own_info(error: HocketError) -> ErrorInfo:
    given = error.info()
    if type(given) is not ErrorInfo:
        raise TypeError(f"info() returned a {_name(type(given))}")
    return _checked(given)


def _checked(given: ErrorInfo) -> ErrorInfo:
    details: Any = plain(given.details, "details")
    if len(repr(details)) > MAX_DETAIL_CHARS:
        details = {"cut": True}
    fields = dict(given.__dict__) | {
        "details": details,
        "code": given.code[:MAX_NAME_CHARS],
        "message": without_url_passwords(given.message[:MAX_ERROR_TEXT_CHARS]),
        "component": given.component or COMPONENT,
    }
    return ErrorInfo.model_validate(fields)  # the handler may have built it without validation


def _name(kind: type, *, with_module: bool = False) -> str:
    """Return the name of a class, read through `type` itself because the class may override it."""
    name = type.__getattribute__(kind, "__qualname__" if with_module else "__name__")
    module = type.__getattribute__(kind, "__module__") if with_module else None
    shown = f"{module}.{name}" if isinstance(module, str) else str(name)
    return shown[:MAX_NAME_CHARS]


def _text(error: BaseException) -> str:
    """Return an exception's text, or why it cannot be read."""
    try:
        return without_url_passwords(str.__str__(str(error))[: 2 * MAX_ERROR_TEXT_CHARS])
    except BaseException as fault:
        return f"(its text cannot be read: {_name(type(fault))})"


def waiting() -> ErrorInfo:
    """Return the error of an attempt whose handler waits. Coordinators that know `waits` ignore it; one
    of an earlier release retries the step instead of taking null for its output."""
    return Retryable("its handler waits, and its coordinator suspends no steps").info()
