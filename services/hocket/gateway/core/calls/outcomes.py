"""What the end of an attempt says about its server, for the breaker."""

from hocket.gateway.core.routing.breaker import Outcome
from hocket.gateway.core.routing.history import CallDurations
from hocket.schemas.errors import ErrorClass, HocketError

_SAYS_NOTHING = (ErrorClass.CANCELLED, ErrorClass.RATE_LIMITED, ErrorClass.BUDGET)


def outcome_of(error: HocketError | None, silent_ms: float, slow_ms: float | None) -> Outcome:
    """Return the outcome of an attempt whose server was silent for `silent_ms`, which counts as slow
    from `slow_ms` on (None: unknown).

    If the call itself was refused, the server works. A timeout counts against the server only if it
    had the time that calls usually take; otherwise the caller allowed too little.
    """
    if error is None:
        return Outcome.SLOW if slow_ms is not None and silent_ms >= slow_ms else Outcome.OK
    if error.error_class in _SAYS_NOTHING:
        return Outcome.NOTHING
    if error.error_class is ErrorClass.INVALID:
        return Outcome.OK
    if error.error_class is ErrorClass.TIMEOUT:
        enough_ms = CallDurations.LEAST_SLOW_MS if slow_ms is None else slow_ms
        return Outcome.FAILED if silent_ms >= enough_ms else Outcome.NOTHING
    return Outcome.FAILED
