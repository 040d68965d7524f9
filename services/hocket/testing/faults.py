"""The faults of a play: what happens to which attempt of which step."""

import asyncio
import decimal
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, InvalidInput
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.runner import DECIMALS, Handler
from hocket.workers.runtime.execution.step_threads import Outcome

PASSING = frozenset(
    {
        ErrorClass.TRANSIENT,
        ErrorClass.TIMEOUT,
        ErrorClass.UNAVAILABLE,
        ErrorClass.RATE_LIMITED,
    }
)
"""Errors of these classes are retryable, as those of models and services are."""


def check_time(field: str, ms: float) -> None:
    """Raise InvalidInput unless so much time can pass."""
    if isinstance(ms, bool) or not isinstance(ms, Real) or not 0 <= ms < inf:
        raise InvalidInput(
            field=field, reason=f"it is {ms!r}", cure="Give milliseconds: a number, 0 or more."
        )


def check_whole(field: str, number: int, *, least: int) -> None:
    """Raise InvalidInput unless it is a whole number, `least` or more."""
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise InvalidInput(
            field=field, reason=f"it is {number!r}", cure=f"Give a whole number, {least} or more."
        )


def class_of(name: ErrorClass | str) -> ErrorClass:
    """Return the class of errors with this name. Raises InvalidInput."""
    try:
        return ErrorClass(name)
    except ValueError:
        raise InvalidInput(
            field="error_class",
            reason=f"it is {name!r}",
            cure=f"Use one of {', '.join(ErrorClass)}.",
        ) from None


class Injected(HocketError):
    """{message}"""

    def __init__(self, code: str, message: str, error_class: ErrorClass) -> None:
        super().__init__(message=message)
        self._code = code
        self._class = error_class

    def info(self) -> ErrorInfo:
        """Return the error that the test injects."""
        passing = self._class in PASSING
        fields = {"code": self._code, "error_class": self._class, "retryable": passing}
        return super().info().model_copy(update=fields)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to an attempt: it waits for `takes_ms` (None: forever), and then fails with `error`,
    or runs if there is none. With `dies_after`, its worker dies when its journal has that many more
    entries."""

    step: str
    attempt: int | None
    takes_ms: float | None = 0.0
    error: Injected | None = None
    dies_after: int | None = None


def fault_of(faults: Iterable[Fault], step: RequestedStep) -> Fault | None:
    """Return the fault of an attempt, if any; one for the step's key takes precedence over one for its
    node's path."""
    found = [one for one in faults if one.attempt in (None, step.attempt)]
    for name in (step.step, step.node):
        for one in found:
            if one.step == name:
                return one
    return None


async def handled(handler: Handler, context: Context, fault: Fault | None) -> Outcome:
    """Apply the test's fault, if any, and call the handler unless the fault is an error. A handler that
    exits has failed, as at a worker; asyncio would end the play, and with it the test run. (Ctrl-C does
    not get here: asyncio cancels the play.)"""
    if fault is not None:
        if fault.takes_ms is None:
            await asyncio.Event().wait()
        elif fault.takes_ms:
            await asyncio.sleep(fault.takes_ms / 1000)
        if fault.error is not None:
            raise fault.error
    try:
        decimal.setcontext(DECIMALS.copy())  # handlers would otherwise share the test's
        return Outcome(value=await handler(context))
    except (SystemExit, KeyboardInterrupt) as error:
        return Outcome(error=error)
