"""Results of workers that are not what the contract says. Their steps fail and say why, instead of
waiting for their timeouts. Pure: a replayed log gives the same."""

import json
from typing import Any

from pydantic import ValidationError

from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import AttemptFinished, AttemptsFinished

_WHOSE = ("run_id", "step", "attempt", "delivery", "dispatched_at_ms", "capability", "took")
"""Without these, nobody knows to which attempt a result belongs, or whether it may tell."""


class ResultMalformed(HocketError):
    """The worker's result is not what the worker protocol says, at `{field}`: {reason}. Fix the worker,
    and retry the run."""

    code = "result_malformed"
    error_class = ErrorClass.INVALID


def read_leniently(kind: str, body: bytes) -> tuple[AttemptFinished, ...]:
    """Return the results in a message that is not valid: half of a surrogate pair, as JavaScript may
    cut text, is U+FFFD, and a result with a wrong field is a failure. Empty if they cannot be told."""
    if kind not in (AttemptFinished.kind, AttemptsFinished.kind):
        return ()
    try:
        value = json.loads(_whole(body))
    except (ValueError, RecursionError):
        return ()
    several = kind == AttemptsFinished.kind
    given = value.get("results") if several and isinstance(value, dict) else [value]
    if not isinstance(given, list):
        return ()
    return tuple(result for one in given if (result := _result(one)) is not None)


def _whole(body: bytes) -> str:
    """Return a JSON text without halves of surrogate pairs. Raises ValueError and RecursionError."""
    text = json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _result(given: Any) -> AttemptFinished | None:
    if not isinstance(given, dict):
        return None
    try:
        return AttemptFinished.model_validate(given)
    except ValidationError as error:
        fault = first_fault(error)
    failure = ResultMalformed(field=fault.field("the result"), reason=fault.reason)
    told: dict[str, Any] = {name: given[name] for name in _WHOSE if name in given}
    told["error"] = failure.info()
    for spent in (
        {"spend": given.get("spend", {})},
        {},
    ):  # what it cost counts, if that can be read
        try:
            return AttemptFinished.model_validate(told | spent)
        except ValidationError:
            continue
    return None
