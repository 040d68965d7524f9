"""How a coordinator reads the results in its log: ordinary ones here, everything else by the contract.

A result is ordinary if it tells of a success without model calls, waits or sub-runs: most of a log. What
follows reads the contract's message, so that is made from what is decoded, without a second check.
Of a large one with many lists and objects, the contract reads all but the output, which it would take
several times as long to decode.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict
from pydantic_core import from_json, to_json

from hocket.schemas.messages import AttemptFinished, AttemptsFinished, LogEvent
from hocket.schemas.messages import read_log as read_by_contract
from hocket.schemas.structs.fields import (
    NOT_READ,
    Int32,
    Milliseconds,
    Moment,
    Name,
    StepKey,
    are_names,
    is_shallow,
)

MIN_LARGE_BYTES = 16 * 1024
"""The contract reads a smaller message in half a millisecond, whatever it holds."""


class OrdinaryResult(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of AttemptFinished that an ordinary result has."""

    run_id: Name
    step: StepKey
    attempt: Int32
    output: Any = None
    started_at_ms: Milliseconds = 0.0
    finished_at_ms: Milliseconds = 0.0
    queued_at_ms: Milliseconds = 0.0
    delivery: Int32 = 0
    worker: Name = ""
    dispatched_at_ms: Moment | None = None
    input_digest: Name = ""
    capability: Name | None = None
    took: Int32 = 0


class OrdinaryResults(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of AttemptsFinished."""

    results: tuple[OrdinaryResult, ...]


def read_log(kind: str, body: bytes) -> tuple[LogEvent, ...]:
    """Return the events in one message of a log, in order; raise ValueError if none can be read."""
    decode = _DECODERS.get(kind)
    if decode is not None and _CALLS not in body and is_shallow(body):
        try:
            results = decode(body)
        except NOT_READ:
            return read_by_contract(kind, body)
        if _has_no_controls(body) or all(map(_has_names, results)):
            return tuple([_of_contract(one) for one in results])
    elif decode is not None and len(body) >= MIN_LARGE_BYTES and not is_shallow(body):
        return _read_large(kind, body)
    return read_by_contract(kind, body)


def _read_large(kind: str, body: bytes) -> tuple[LogEvent, ...]:
    """Return what the contract reads in a message; it is given all but the outputs."""
    try:
        value = from_json(body)
        given = value["results"] if kind == AttemptsFinished.kind else [value]
        outputs = [one.pop("output", None) for one in given]
        events = read_by_contract(kind, to_json(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        return read_by_contract(kind, body)  # whose errors are reported
    return tuple(
        event.model_copy(update={"output": output})
        for event, output in zip(events, outputs, strict=True)
    )


def _has_no_controls(body: bytes) -> bool:
    """Tell whether no text in well-formed JSON can have a control character: all but one of them are
    written with a backslash."""
    return b"\\" not in body and b"\x7f" not in body


def _has_names(one: OrdinaryResult) -> bool:
    return are_names(one.run_id, one.step, one.worker, one.input_digest, one.capability or "")


def _of_contract(result: OrdinaryResult) -> AttemptFinished:
    """Return the message of the contract, as `model_construct` makes it in several times the time."""
    event = _new(AttemptFinished)
    _set(event, "__dict__", _DEFAULTS | asdict(result))
    _set(event, "__pydantic_fields_set__", _FIELDS)
    _set(event, "__pydantic_extra__", None)
    _set(event, "__pydantic_private__", None)
    return event


def _decode_one(body: bytes) -> tuple[OrdinaryResult, ...]:
    return (_one(body),)


def _decode_several(body: bytes) -> tuple[OrdinaryResult, ...]:
    return _several(body).results


_CALLS = b'"spend"'
"""Every result with model calls has this: to find it takes less than to fail at it."""
_new, _set = object.__new__, object.__setattr__
_one = msgspec.json.Decoder(OrdinaryResult).decode
_several = msgspec.json.Decoder(OrdinaryResults).decode
_DECODERS: dict[str, Callable[[bytes], tuple[OrdinaryResult, ...]]] = {
    AttemptFinished.kind: _decode_one,
    AttemptsFinished.kind: _decode_several,
}
_DEFAULTS: dict[str, Any] = dict(AttemptFinished(run_id="", step="", attempt=0).__dict__)
_FIELDS = set(_DEFAULTS)
"""All of them count as set: nothing asks a message of a log which ones it had."""
