"""Errors as OpenAI's API tells them."""

from typing import Any

import pytest

from hocket.gateway.core.errors import BackendsBusy
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.openai.failures import failure

NOW_MS = 1_800_000_000_000.0


def test_an_error_says_when_to_come_again() -> None:
    error = BackendsBusy(model="m", reason="full", retry_at_ms=NOW_MS + 1_500).info()
    told = failure(error, NOW_MS)
    assert (told.status, told.body["error"]["type"]) == (429, "rate_limit_error")
    assert (told.headers["retry-after"], told.headers["retry-after-ms"]) == ("2", "1500")
    assert told.headers["x-should-retry"] == "true"


@pytest.mark.parametrize(
    ("error_class", "status", "kind"),
    [
        (ErrorClass.INVALID, 400, "invalid_request_error"),
        (ErrorClass.BUDGET, 429, "insufficient_quota"),
        (ErrorClass.UNAVAILABLE, 503, "server_error"),
        (ErrorClass.TIMEOUT, 504, "server_error"),
        (ErrorClass.PERMANENT, 502, "server_error"),
    ],
)
def test_every_class_of_error_has_its_status(
    error_class: ErrorClass, status: int, kind: str
) -> None:
    told = failure(ErrorInfo(code="c", message="m", error_class=error_class), NOW_MS)
    assert (told.status, told.body["error"]["type"]) == (status, kind)
    assert told.headers["x-should-retry"] == "false"


def _named(code: str, **fields: Any) -> tuple[str, str | None]:
    told = failure(ErrorInfo(code=code, message="m", **fields), NOW_MS).body["error"]
    return told["code"], told["param"]


def test_what_a_backend_calls_its_refusal_is_told_as_clients_know_it() -> None:
    details = {"backend_code": "context_length_exceeded", "backend_param": "messages"}
    assert _named("backend_refused", details=details) == ("context_length_exceeded", "messages")
    assert _named("backend_refused") == ("backend_refused", None)
    assert _named("backend_broken", details=details) == ("backend_broken", None)


@pytest.mark.parametrize("code", ["model_unknown", "model_forbidden", "grant_missing"])
def test_an_error_about_the_model_names_its_field(code: str) -> None:
    assert _named(code) == (code, "model")
