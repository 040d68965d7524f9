"""Functions that every worker runs, whatever it was started for; meant for examples and tests.

`hocket.workers.builtin:echo` returns its input, `:sleep` does so after `seconds`, `:fail` fails.
They touch nothing outside the step. docs/how-to/workers.md
"""

import asyncio
import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError

__all__ = ["echo", "fail", "sleep"]

MAX_SECONDS = 24 * 3600.0


class ToldToFail(HocketError):
    """The step was told to fail: {reason}."""

    code = "told_to_fail"

    def __init__(self, reason: str, error_class: ErrorClass) -> None:
        super().__init__(reason=reason)
        self._told = error_class

    def info(self) -> ErrorInfo:
        """Return the error, with the requested class."""
        passing = self._told in (ErrorClass.TRANSIENT, ErrorClass.TIMEOUT, ErrorClass.UNAVAILABLE)
        return super().info().model_copy(update={"error_class": self._told, "retryable": passing})


class _Given(BaseModel):
    model_config = ConfigDict(extra="allow")


class Sleep(_Given):
    """How long to sleep, and whatever else is to be given back."""

    seconds: float = Field(ge=0, le=MAX_SECONDS)


class Fail(_Given):
    """How to fail: of which class, and why."""

    error_class: ErrorClass = ErrorClass.PERMANENT
    reason: str = Field("no reason given", max_length=2_000)


async def echo(given: Any) -> Any:
    """Return the input."""
    return given


async def sleep(given: Sleep) -> dict[str, Any]:
    """Sleep for at least `seconds`; return the input with the `seconds` that it took."""
    return given.model_dump() | {"seconds": await take(given.seconds)}


async def fail(given: Fail) -> None:
    """Fail with the code `told_to_fail` and the class that the input names."""
    raise ToldToFail(given.reason, given.error_class)


async def take(seconds: float) -> float:
    """Wait for at least this many seconds; return how long it took."""
    begun_ms = monotonic_ms()
    until_ms = begun_ms + 1000 * seconds
    while (left_ms := until_ms - monotonic_ms()) > 0:  # noqa: ASYNC110 - timers may fire early
        await asyncio.sleep(math.ceil(left_ms) / 1000)
    return (monotonic_ms() - begun_ms) / 1000
