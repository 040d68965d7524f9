"""How large a run is: the JSON size of its inputs, outputs, errors and held messages, and how many
operations its expressions have taken.

Values are counted as they are kept, so that a run which multiplies its input fails before it fills
the memory, the log or a batch of the committer. A value that several steps share counts for each of
them, because each has a row of its own.
"""

from typing import Any

from pydantic_core import to_json

from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import AttemptFinished

MAX_RUN_STATE_BYTES = 64 * 1024 * 1024
"""The limit for the inputs and outputs of all steps of one run."""


MAX_VALUE_DEPTH = 190
"""How deep a step's value may nest: message parsers go 200 levels deep, and messages wrap the value."""
MAX_RUN_OPERATIONS = 300_000_000
"""The limit for the operations of all expressions of one run, including what its steps count: 8 to
30 s of one core."""
FREE_EVENT_OPERATIONS = 5_000
"""An event that takes no more than this costs less than reading and writing it, and is not counted."""


class ValueTooDeep(HocketError):
    """A value nests deeper than {limit} levels. Have steps pass on what the next one needs (`with`),
    not everything that they were given."""

    code = "value_too_deep"
    error_class = ErrorClass.INVALID


class RunTooLarge(HocketError):
    """The inputs, outputs and errors of the run's steps come to {size_bytes} bytes; the limit is
    {limit_bytes}. Keep large values elsewhere (a database, a file server) and pass their address, map
    over fewer items, or have a loop keep less."""

    code = "run_too_large"
    error_class = ErrorClass.INVALID


class RunComputesTooMuch(HocketError):
    """One event of the run asks for too much at once: its expressions, and the steps that start with
    it, take more than {limit} operations. Lower `map.concurrency`, compute in `python` nodes, or use
    steps that workers run in loops and maps."""

    code = "run_computes_too_much"
    error_class = ErrorClass.INVALID


class ExpressionsUsedUp(HocketError):
    """The expressions of the run have taken more than {limit} operations in all. Compute in `python`
    nodes, which workers run, lower `loop.max_rounds`, or map over fewer items."""

    code = "expressions_used_up"
    error_class = ErrorClass.INVALID


def counted(operations: int) -> int:
    """Return how many operations of one event count for the run: none if the event is small."""
    return 0 if operations <= FREE_EVENT_OPERATIONS else operations


def size_of(value: Any) -> int:
    """Return the approximate size of a value as JSON (bytes); raise ValueTooDeep if no message
    could hold it."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict | list):
        return len(_text_of(value))
    return 8


def check_depth(value: Any) -> None:
    """Raise ValueTooDeep if a JSON value nests too deep for a message. An empty list or object is no
    level. To look through it takes a fraction of the time of parsing its text."""
    level: list[Any] = [[value]]
    for _ in range(MAX_VALUE_DEPTH + 1):
        level = [
            part
            for one in level
            for part in (one.values() if isinstance(one, dict) else one)
            if part and isinstance(part, (list, dict))
        ]
        if not level:
            return
    raise ValueTooDeep(limit=MAX_VALUE_DEPTH)


def _text_of(value: Any) -> bytes:
    try:
        text = to_json(value)
    except ValueError as error:
        if "depth" in str(error):
            raise ValueTooDeep(limit=MAX_VALUE_DEPTH) from None
        raise
    if text.count(b"[") + text.count(b"{") > MAX_VALUE_DEPTH:
        check_depth(value)
    return text


def error_size(error: ErrorInfo | None) -> int:
    """Return the approximate size of an error's message and details (bytes)."""
    if error is None:
        return 0
    return len(error.message) + (len(to_json(error.details)) if error.details else 0)


def result_size(event: AttemptFinished) -> int:
    """Return the approximate size of a held result (bytes)."""
    return size_of(event.output) + error_size(event.error)
