"""A handler's exception as a typed error. Pure."""

import traceback
from types import TracebackType

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.workers.runtime.results import MAX_ERROR_TEXT_CHARS

MAX_FRAMES = 5
COMPONENT = "worker"


def error_info(error: BaseException) -> ErrorInfo:
    """Return a HocketError's own data; for others `handler_failed`, with the type and last frames.

    Connection errors, timeouts and OS errors are transient, everything else is permanent.
    """
    if isinstance(error, HocketError):
        return _own_info(error)
    transient = isinstance(error, OSError | TimeoutError | ConnectionError)
    name = type(error).__name__
    text = str(error)[:MAX_ERROR_TEXT_CHARS]
    return ErrorInfo(
        code="handler_failed",
        message=f"The handler failed with {name}: {text}"
        if text
        else f"The handler failed: {name}",
        error_class=ErrorClass.TRANSIENT if transient else ErrorClass.PERMANENT,
        retryable=transient,
        component=COMPONENT,
        details={
            "exception": f"{type(error).__module__}.{type(error).__qualname__}",
            "frames": last_frames(error.__traceback__),
        },
    )


def last_frames(trace: TracebackType | None) -> list[str]:
    """Return the innermost frames of a traceback, outermost first, as `file:line function`."""
    frames = traceback.extract_tb(trace)[-MAX_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _own_info(error: HocketError) -> ErrorInfo:
    info = error.info()
    return info if info.component else info.model_copy(update={"component": COMPONENT})
