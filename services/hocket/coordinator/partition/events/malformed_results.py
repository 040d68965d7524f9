"""Results of workers that are not what the contract says. Their steps fail and say why, instead of
waiting for their timeouts. Pure: a replayed log gives the same."""

import json
import re
from typing import Any

from pydantic import ValidationError

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.checks.plain_json import MAX_DEPTH, MAX_INTEGER_DIGITS, shown_text
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import AttemptFinished, AttemptsFinished, LogEvent

ESCAPED_NUL = b"\\u0000"
"""What a well-formed message has whose texts or keys have the character U+0000."""
MAX_LEVELS = 200
"""What lies deeper in a message is not read."""
_DEEP = MAX_LEVELS - 10
"""No part of a message that nests so deep is taken: some of it may not have been read."""

_WHOSE = ("run_id", "step", "attempt", "dispatched_at_ms", "capability")
"""Without these, nobody knows to which attempt a result belongs, or whether it may tell."""
_NAMES = frozenset(("run_id", "step", "attempt"))
_ALSO = ("delivery", "took", "spend")
"""These count if they can be read."""
_ID = re.compile(r"([^:]+):(.+?):([0-9]{1,10})(?::([0-9]{1,20}))?:f(?::([0-9a-f]+))?(?::took)?")
"""The message id of a result (`schemas/ids.py`)."""
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A text, even one that does not end, so that none is read twice; or a bracket."""
_CUT = "[]"
"""Stands where a part was cut out, which is not shorter: the text becomes no longer."""
_NO_FIELD = "the result"


class ResultMalformed(HocketError):
    """The worker's result is not what the worker protocol says, at `{field}`: {reason}. Fix the worker,
    and retry the run."""

    code = "result_malformed"
    error_class = ErrorClass.INVALID


class OutputKeysMeet(HocketError):
    """The step's output cannot be kept: two keys of one object are both `{key}` once the characters
    are replaced that cannot be stored. Give them different names, and retry the run."""

    code = "output_not_json"
    error_class = ErrorClass.INVALID


class _Unread:
    """Stands in a value for a part that cannot be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _PartUnread(ValueError):
    pass


_TOO_DEEP = f"it nests deeper than {MAX_DEPTH} levels"
_TOO_LONG = _Unread(f"an integer has more than {MAX_INTEGER_DIGITS} digits")


def read_leniently(kind: str, body: bytes, msg_id: str) -> tuple[AttemptFinished, ...]:
    """Return the results in a message that is not valid. Halves of surrogate pairs, as JavaScript may
    cut text, and bytes that are not UTF-8 become U+FFFD, and a result with a wrong field is a failure.
    Of a message that is no result at all, `msg_id` says whose it would be. Empty if nobody can tell."""
    if kind not in (AttemptFinished.kind, AttemptsFinished.kind):
        return ()
    reason = "it is not an object"
    try:
        value = _decoded(body)
    except ValueError as error:
        value, reason = None, f"it is not JSON ({error})"
    if kind == AttemptsFinished.kind:
        given = value.get("results") if isinstance(value, dict) else None
        found = [_result(one) for one in given] if isinstance(given, list) else []
    else:
        found = [_with_took(_result(value) or _named(msg_id, value, reason), msg_id)]
    return tuple(result for result in found if result is not None)


def with_all_keys(events: tuple[LogEvent, ...]) -> tuple[LogEvent, ...]:
    """Return the events of a message with U+0000; a result fails if that would cost it a key."""
    return tuple(
        _without_loss(event, event.output) if isinstance(event, AttemptFinished) else event
        for event in events
    )


# ---- what a message says --------------------------------------------------------------------


def _decoded(body: bytes) -> Any:
    """Return a JSON value, with stand-ins for parts that cannot be read. Raises ValueError."""
    text = _text_of(body)
    if text.count("[") + text.count("{") > MAX_LEVELS:
        text = _without_depths(text)
    return json.loads(text, strict=False, parse_int=_integer)


def _text_of(body: bytes) -> str:
    """Return the text of a message; what is not UTF-8 becomes halves of surrogate pairs, each its own,
    so that no two keys become the same."""
    try:
        return body.decode(json.detect_encoding(body), "surrogatepass")
    except UnicodeDecodeError:
        return body.decode("utf-8", "surrogateescape")


def _without_depths(text: str) -> str:
    """Return a JSON text without what nests too deep."""
    kept: list[str] = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        char = text[token.start()]
        if char in "[{":
            depth += 1
            if depth == MAX_LEVELS + 1:
                kept.append(text[begin : token.start()])
        elif char in "]}":
            if depth == MAX_LEVELS + 1:
                kept.append(_CUT)
                begin = token.end()
            depth -= 1
    if depth <= MAX_LEVELS:  # otherwise it does not end, and is no JSON
        kept.append(text[begin:])
    return "".join(kept)


def _integer(digits: str) -> int | _Unread:
    try:
        return int(digits)
    except ValueError:
        return _TOO_LONG


def _whole(value: Any) -> Any:
    """Return a JSON value without halves of surrogate pairs. Raises _PartUnread."""
    if _is_deep(value):
        raise _PartUnread(_TOO_DEEP)
    text = json.dumps(value, ensure_ascii=False, default=_refuse)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEP):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _refuse(part: Any) -> Any:
    raise _PartUnread(part.reason)


# ---- what comes of a result -----------------------------------------------------------------


def _result(given: Any) -> AttemptFinished | None:
    """Return a result, or its failure; None if it does not say whose it is."""
    if not isinstance(given, dict) or not given.keys() >= _NAMES:
        return None
    told: dict[str, Any] = {}
    failure: ResultMalformed | None = None
    for name, value in given.items():
        try:
            told[name] = _whole(value)
        except _PartUnread as part:
            failure = failure or ResultMalformed(field=shown_text(name), reason=str(part))
    if failure is None:
        try:
            return _without_loss(AttemptFinished.model_validate(told), given.get("output"))
        except ValidationError as error:
            fault = first_fault(error)
        failure = ResultMalformed(field=fault.field(_NO_FIELD), reason=fault.reason)
    return _failed(told, failure)


def _named(msg_id: str, given: Any, reason: str) -> AttemptFinished | None:
    """Return the failure of the attempt that a message id names; None if it names none."""
    named = _ID.fullmatch(msg_id)
    if named is None:
        return None
    run_id, step, attempt, at_us, capability = named.groups()
    told = {
        "run_id": run_id,
        "step": step,
        "attempt": int(attempt),
        "dispatched_at_ms": None if at_us is None else int(at_us) / 1_000,
        "capability": capability,
    }
    if isinstance(given, dict):
        told |= {name: given[name] for name in _ALSO if name in given}
        reason = "it does not say to which attempt it belongs"
    return _failed(told, ResultMalformed(field=_NO_FIELD, reason=reason))


def _with_took(result: AttemptFinished | None, msg_id: str) -> AttemptFinished | None:
    """Return a result with what its id says: without it, the rest of its bundle would be handed out
    again."""
    if result is None or result.took or not msg_id.endswith(":took"):
        return result
    return result.model_copy(update={"took": 1})


def _failed(told: dict[str, Any], failure: HocketError) -> AttemptFinished | None:
    """Return a failure of the attempt of a result, with what can be read; None if that is nobody's."""
    fields = {name: told[name] for name in _WHOSE if name in told}
    found = _valid(fields | {"error": failure.info()})
    for name in _ALSO:
        if found is not None and name in told:
            more = _valid(fields | {"error": failure.info(), name: told[name]})
            if more is not None:
                found = found.model_copy(update={name: getattr(more, name)})
    return found


def _valid(fields: dict[str, Any]) -> AttemptFinished | None:
    try:
        return AttemptFinished.model_validate(fields)
    except ValidationError:
        return None


def _without_loss(result: AttemptFinished, output: Any) -> AttemptFinished:
    """Return a result, or its failure if two keys of its output become the same when it is stored."""
    key = None if result.error is not None else _key_that_meets_another(output)
    if key is None:
        return result
    error = OutputKeysMeet(key=shown_text(key)).info()
    return result.model_copy(update={"output": None, "error": error})


def _key_that_meets_another(value: Any) -> str | None:
    level = [value]
    while level:
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                kept: set[object] = set()
                for key in one:
                    stored = stored_text(key, limit=len(key))
                    if stored in kept:
                        return str(stored)
                    kept.add(stored)
                below += one.values()
            elif isinstance(one, list):
                below += one
        level = below
    return None
