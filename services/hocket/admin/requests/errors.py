"""The errors of the API's callers, and how every error becomes an HTTP answer.

The body of every answer that is not 2xx is a problem (RFC 9457) with `code`, `field` and `cure`, and the
typed error under `error`. This is the only place that maps errors to HTTP statuses: by the error's code,
otherwise by its class. Internal errors become a 500 with an id to look for in the log; nothing else
about them leaves the process.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any
from uuid import uuid4

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hocket.kit.postgres.database import unavailable
from hocket.kit.postgres.errors import AWAY, OF_SCHEMA
from hocket.schemas.checks.faults import Fault, usual_fault
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.rest import ErrorReply

RETRY_AFTER_S = 1
UNREACHABLE = (*AWAY, *OF_SCHEMA)
"""What is raised while Postgres cannot answer, or has another schema."""

USUAL_CURE = "Change its value; /docs shows what it may be."

log = structlog.get_logger(__name__)


class RunNotOpen(HocketError):
    """Run `{run_id}` has ended ({status}) and can no longer be changed. Submit a new run."""

    code = "run_not_open"
    error_class = ErrorClass.INVALID


class ApprovalDecided(HocketError):
    """The approval `{name}` of run `{run_id}` has been decided, or its time is up. This answer was not
    sent: `GET /v1/runs/{run_id}` tells what was decided. Answer another approval of that name by its
    step's key, such as `review#2/ok`."""

    code = "approval_decided"
    error_class = ErrorClass.INVALID


class SignalUnknown(HocketError):
    """Nothing in run `{run_id}` waits for `{name}`, now or later. It was not sent. Its pipeline waits
    for: {known}. Waiting now: {waiting}. What a sub-run waits for is sent to that sub-run."""

    code = "signal_unknown"
    error_class = ErrorClass.INVALID


class SignalsNotRead(HocketError):
    """No step of run `{run_id}` waits for `{name}` now, and the run already keeps {count} signals that
    no step has read ({size_bytes} bytes with this one; {limit} signals and {limit_bytes} bytes are
    kept). It was not sent: send it again when a step waits for it."""

    code = "signals_not_read"
    error_class = ErrorClass.INVALID


class RequestMalformed(HocketError):
    """The request cannot be read: {reason}. Send it as HTTP/1.1, with a head of at most 65,536 bytes."""

    code = "request_malformed"
    error_class = ErrorClass.INVALID


class ServerFault(HocketError):
    """The API failed internally; its log has the details under `{fault_id}`. Please report it."""

    code = "internal_error"


PROBLEM_TYPE = "application/problem+json"
STATUS_BY_CODE: Mapping[str, int] = {
    "address_malformed": 400,
    "request_malformed": 400,
    "host_missing": 400,
    "key_missing": 401,
    "key_refused": 401,
    "token_refused": 401,
    "origin_refused": 403,
    "ticket_of_page": 403,
    "ticket_of_token": 403,
    "permission_missing": 403,
    "tenant_forbidden": 403,
    "no_role": 403,
    "sign_in_refused": 403,
    "person_revoked": 403,
    "model_forbidden": 403,
    "no_provider": 404,
    "tenant_not_named": 403,
    "role_beyond_own": 403,
    "key_beyond_own": 403,
    "grant_missing": 403,
    "no_such_address": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "unsupported_media_type": 415,
    "body_encoded": 415,
    "host_not_served": 421,
    "payload_too_large": 413,
    "pipeline_unknown": 404,
    "pipeline_archived": 409,
    "pipeline_in_use": 409,
    "nothing_to_roll_back": 409,
    "no_canary": 404,
    "run_unknown": 404,
    "node_type_unknown": 404,
    "queue_unknown": 404,
    "step_unknown": 404,
    "signal_unknown": 404,
    "call_unknown": 404,
    "experiment_unknown": 404,
    "backend_unknown": 404,
    "replica_unknown": 404,
    "replica_not_started": 409,
    "dead_letter_unknown": 404,
    "key_unknown": 404,
    "webhook_unknown": 404,
    "delivery_unknown": 404,
    "webhooks_full": 409,
    "webhook_queue_full": 409,
    "webhook_in_rotation": 409,
    "schedule_unknown": 404,
    "schedules_full": 409,
    "precondition_failed": 412,
    "bulk_operation_unknown": 404,
    "bulk_operation_ended": 409,
    "bulk_too_large": 409,
    "key_revoked": 409,
    "key_expired": 409,
    "key_of_person": 409,
    "key_in_rotation": 409,
    "dead_letter_settled": 409,
    "dead_letter_foreign": 409,
    "dead_letter_cut": 409,
    "idempotency_key_reused": 409,
    "run_not_open": 409,
    "run_open": 409,
    "signals_not_read": 409,
    "approval_decided": 409,
    "nothing_to_retry": 409,
    "data_in_use": 409,
    "tenant_unconfirmed": 409,
    "malformed_task": 400,
    "publish_refused": 503,
    "internal_error": 500,
}
STATUS_BY_CLASS: Mapping[ErrorClass, int] = {
    ErrorClass.INVALID: 422,
    ErrorClass.BUDGET: 402,
    ErrorClass.RATE_LIMITED: 429,
    ErrorClass.UNAVAILABLE: 503,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.TIMEOUT: 504,
    ErrorClass.CANCELLED: 409,
    ErrorClass.PERMANENT: 422,
}
CODE_BY_STATUS: Mapping[int, str] = {
    400: "bad_request",
    404: "no_such_address",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
}


def status_of(error: ErrorInfo) -> int:
    """Return the HTTP status of an error."""
    return STATUS_BY_CODE.get(error.code) or STATUS_BY_CLASS[error.error_class]


def add_error_handlers(app: FastAPI) -> None:
    """Convert every error raised by an endpoint into the API's error body."""
    app.add_exception_handler(HocketError, _known)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    for unreachable in UNREACHABLE:
        app.add_exception_handler(unreachable, _unexpected)
    app.add_exception_handler(Exception, _unexpected)


def error_response(error: ErrorInfo) -> Response:
    """Return the HTTP answer of an error."""
    status = status_of(error)
    headers = {"Retry-After": str(_retry_after_s(error))} if status in (429, 503) else {}
    return _problem(error, status, headers)


def _problem(error: ErrorInfo, status: int, headers: Mapping[str, str]) -> Response:
    if status == HTTPStatus.UNAUTHORIZED:
        headers = {**headers, "WWW-Authenticate": "Bearer"}
    if status == HTTPStatus.REQUEST_TIMEOUT:  # the rest of the body may never come
        headers = {**headers, "Connection": "close"}
    body = ErrorReply(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        field=error.field,
        cure=str(error.details["cure"]) if "cure" in error.details else None,
        error=error,
    )
    return Response(
        body.model_dump_json(), status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers)
    )


def _retry_after_s(error: ErrorInfo) -> int:
    """Return the number of whole seconds after which the error says to try again."""
    after_ms = error.details.get("retry_after_ms")
    return RETRY_AFTER_S if after_ms is None else max(1, ceil(after_ms / 1000))


async def _known(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HocketError)
    return error_response(error.info())


async def _validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(_first_fault(error.errors()))


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, HocketError):
        return error_response(error.__cause__.info())
    info = ErrorInfo(
        code=CODE_BY_STATUS.get(error.status_code, "http_error"),
        message=f"{error.detail}. The addresses are listed at /docs.",
        error_class=ErrorClass.INVALID,
    )
    return _problem(info, error.status_code, error.headers or {})


async def _unexpected(request: Request, error: Exception) -> Response:
    return error_response(told_of(request, error).info())


def told_of(request: Request, error: Exception) -> HocketError:
    """Return what a caller is told of an error that no endpoint expects, and log it."""
    path = request.url.path
    if isinstance(error, UNREACHABLE):
        told = unavailable(error)
        log.warning(told.code, path=path, error=str(error) or type(error).__name__)
        return told
    fault_id = uuid4().hex[:12]
    log.error("request_failed", path=path, fault_id=fault_id, exc_info=error)
    return ServerFault(fault_id=fault_id)


def reason_of(fault: Mapping[str, Any]) -> str:
    """Return what a validation fault says, and its cure if it has its own, without the last full
    stop."""
    _, reason, cure = _worded(fault, "")
    return reason if cure == USUAL_CURE else f"{reason}. {cure}".removesuffix(".")


def _worded(fault: Mapping[str, Any], field: str) -> Fault:
    """Return a validation fault without the framework's own words, and without the value."""
    if fault["type"] == "value_error":
        return Fault(field, str(fault["msg"]).removeprefix("Value error, "), USUAL_CURE)
    return usual_fault(fault, field)


def _first_fault(faults: Sequence[Any]) -> ErrorInfo:
    fault = faults[0]
    place, kind = [str(part) for part in fault["loc"] if part != "[key]"], fault["type"]
    field = ".".join(place[1:] if len(place) > 1 else place) or "(body)"
    if kind == "json_invalid":
        reason, cure = str(fault.get("ctx", {}).get("error", "")), "Send one JSON object."
        field, reason = "(body)", f"it is not JSON ({reason}, at character {place[-1]})"
    elif kind == "model_attributes_type" and len(place) == 1:
        field, reason = "(body)", "it is not a JSON object"
        cure = "Send one JSON object with the header `Content-Type: application/json`."
    else:
        field, reason, cure = _worded(fault, field)
    return ErrorInfo(
        code="invalid_input",
        message=f"`{field}` is not valid: {reason}. {cure}",
        error_class=ErrorClass.INVALID,
        field=field,
        details={"faults": len(faults), "cure": cure},
    )
