"""Errors as OpenAI's clients expect them: a status, an `error` object, and whether to try again.

The whole typed error is under `error.hocket`, for clients that can read more than a message. If a
backend refused a call, its own code and parameter take the place of Hocket's: clients know these.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from hocket.schemas.errors import ErrorClass, ErrorInfo

MAX_RETRY_AFTER_MS = 3_600_000.0
_STATUS_OF_CLASS = {
    ErrorClass.INVALID: 400,
    ErrorClass.BUDGET: 429,
    ErrorClass.RATE_LIMITED: 429,
    ErrorClass.CANCELLED: 499,
    ErrorClass.PERMANENT: 502,
    ErrorClass.TRANSIENT: 502,
    ErrorClass.UNAVAILABLE: 503,
    ErrorClass.TIMEOUT: 504,
}
_STATUS_OF_CODE = {
    "key_missing": 401,
    "key_refused": 401,
    "token_refused": 401,
    "model_forbidden": 403,
    "grant_missing": 403,
    "permission_missing": 403,
    "tenant_forbidden": 403,
    "no_role": 403,
    "tenant_not_named": 403,
    "origin_refused": 403,
    "model_unknown": 404,
    "model_skipped": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "call_id_reused": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "body_encoded": 415,
    "host_not_served": 421,
    "function_failed": 500,
    "gateway_broken": 500,
}
_OPENAI_CODES = dict.fromkeys(("key_missing", "key_refused", "token_refused"), "invalid_api_key")
_OF_THE_MODEL = frozenset({"model_unknown", "model_skipped", "model_forbidden", "grant_missing"})
"""Errors about the `model` that a call names."""
REFUSED = "backend_refused"
BACKEND_CODE, BACKEND_PARAM = "backend_code", "backend_param"
"""The details of an error that hold what its backend calls it, and the parameter that it names."""
RESERVED = "reserved"
"""The state of a budget's error while calls in progress may cost what is left: it passes when they have
ended. So a client is told to try again, although it is not `retryable`: of steps, `retry.on` decides."""
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way to a client."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def failure(error: ErrorInfo, now_ms: float) -> Failure:
    """Return an error in the form that a client gets."""
    status = _STATUS_OF_CODE.get(error.code) or _STATUS_OF_CLASS[error.error_class]
    of_budget = error.error_class is ErrorClass.BUDGET
    may_pass = error.retryable or (of_budget and error.state == RESERVED)
    headers = {"x-should-retry": "true" if may_pass else "false"}
    if error.retry_at_ms is not None:
        after_ms = min(max(error.retry_at_ms - now_ms, 0.0), MAX_RETRY_AFTER_MS)
        headers["retry-after"] = str(ceil(after_ms / 1000))
        headers["retry-after-ms"] = str(ceil(after_ms))
    kind = "invalid_request_error" if status < 500 else "server_error"
    if of_budget and not may_pass:
        kind = "insufficient_quota"
    body = {
        "error": {
            "message": error.message,
            "type": _TYPES.get(status, kind) if kind != "insufficient_quota" else kind,
            "param": _param(error),
            "code": _code(error),
            "hocket": error.model_dump(mode="json", exclude_none=True, exclude={"message"}),
        }
    }
    return Failure(status, body, headers)


def _code(error: ErrorInfo) -> str:
    """Return the code of an error, as a client of OpenAI's API knows it."""
    told = error.details.get(BACKEND_CODE) if error.code == REFUSED else None
    return told if isinstance(told, str) else _OPENAI_CODES.get(error.code, error.code)


def _param(error: ErrorInfo) -> str | None:
    """Return the field of the request that an error is about, if it is about one."""
    if error.code in _OF_THE_MODEL:
        return "model"
    told = error.details.get(BACKEND_PARAM) if error.code == REFUSED else None
    return told if isinstance(told, str) else error.field
