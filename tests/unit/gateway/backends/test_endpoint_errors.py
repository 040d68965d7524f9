"""The errors of an endpoint: what they say of its connection, and how long it rests."""

import json
import ssl
from errno import ECONNREFUSED
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from structlog.testing import capture_logs

from hocket.gateway.backends.anthropic import AnthropicBackend
from hocket.gateway.backends.endpoint_errors import MAX_REST_MS, REST_MS, EndpointErrors
from hocket.gateway.backends.http_connections import ConnectingFailed
from hocket.gateway.backends.protocol import BackendUnsuited
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.messages import CallRequest, OpenAIBody

NOW_MS = 1_800_000_000_000.0
HOST = "10.7.7.7"
ERRORS = EndpointErrors("it", "sk-secret", lambda: NOW_MS)
KEY = ConnectionKey(HOST, 8000, False, True, None, None, None)
ASKED = cast(Any, SimpleNamespace(real_url=f"http://{HOST}:8000/v1"))
REFUSED = OSError(ECONNREFUSED, f"Connect call failed ('{HOST}', 8000)")
LOST = {
    "refused": aiohttp.ClientConnectorError(KEY, REFUSED),
    "refused without a stream": ConnectingFailed(*REFUSED.args),
    "refused everywhere": ConnectingFailed(f"Multiple exceptions: {REFUSED}, {REFUSED}"),
    "no TLS": aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "wrong version number")),
    "a certificate": aiohttp.ClientConnectorCertificateError(
        KEY, ssl.SSLCertVerificationError(1, f"not valid for '{HOST}'")
    ),
    "not HTTP": aiohttp.ClientResponseError(ASKED, (), status=400, message="Bad status line"),
    "while sending": aiohttp.ClientOSError(None, f"Can not write request body for http://{HOST}"),
    "a URL": aiohttp.InvalidURL(f"http://{HOST}"),
}


@pytest.mark.parametrize("error", LOST.values(), ids=LOST.keys())
def test_callers_are_not_told_the_address_of_a_backend_and_its_log_is(error: Exception) -> None:
    with capture_logs() as logs:
        told = ERRORS.unanswered(error, 1_000.0)
    assert HOST not in told.info().model_dump_json()
    assert HOST in logs[0]["reason"]


def test_the_reason_of_a_failed_connection_is_told() -> None:
    for name in ("refused", "refused without a stream"):
        told = ERRORS.unanswered(LOST[name], 1_000.0)
        assert told.fields["reason"] == f"[Errno {ECONNREFUSED}] Connection refused"
        assert told.unconnected
    unknown = OSError(-2, "Name or service not known")
    told = ERRORS.unanswered(aiohttp.ClientConnectorDNSError(KEY, unknown), 1_000.0)
    assert told.fields["reason"] == "[Errno -2] Name or service not known"


@pytest.mark.parametrize(
    ("headers", "rest_ms"),
    [
        ({"retry-after-ms": "8000"}, 8_000.0),
        ({"retry-after-ms": "1500.5", "retry-after": "2"}, 1_500.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2_000.0),
        ({"retry-after-ms": "nan"}, REST_MS),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"retry-after-ms": "1e400"}, MAX_REST_MS),
        ({"retry-after": "2.5"}, 2_500.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:05 GMT"}, 5_000.0),
        ({"retry-after": "soon"}, REST_MS),
        ({}, REST_MS),
    ],
)
def test_a_backend_rests_as_long_as_its_headers_say(
    headers: dict[str, str], rest_ms: float
) -> None:
    limited = ERRORS.failure(429, headers, b"")
    assert limited.fields["retry_at_ms"] == NOW_MS + rest_ms
    overloaded = ERRORS.failure(503, headers, b"").fields.get("retry_at_ms")
    assert overloaded == (NOW_MS + rest_ms if headers else None)


def _refusal(error: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps({"error": {"message": "no", **error}}).encode()
    return ERRORS.failure(400, {}, content).info().details


def test_what_a_server_calls_its_error_is_kept_if_it_is_a_name() -> None:
    told = _refusal({"code": "context_length_exceeded", "param": "messages"})
    assert (told["backend_code"], told["backend_param"]) == ("context_length_exceeded", "messages")
    for code in ("400", 400, "", "a" * 129, "a\nb", "\ud83d", None, ["a"]):
        assert "backend_code" not in _refusal({"code": code})
    assert _refusal({"code": "of_sk-secret"})["backend_code"] == "of_[redacted]"


def test_a_request_that_cannot_be_sent_is_known_as_unsent() -> None:
    assert ERRORS.unsendable(ValueError("a line break in a header")).unsent
    assert not ERRORS.failure(400, {}, b"no").unsent


def test_an_error_says_whether_the_call_was_sent_and_whether_its_answer_had_begun() -> None:
    said = {"message": "overloaded"}
    for error, text in (
        (ERRORS.reported(said), "Backend `it` answered with status 200: overloaded."),
        (
            ERRORS.reported(said, in_stream=True),
            "The stream of backend `it` broke off: overloaded.",
        ),
        (
            ERRORS.reported({**said, "code": 503}, in_stream=True),
            "Backend `it` answered with status 503: overloaded.",
        ),
        (
            ERRORS.unsendable(ValueError("a line break in a header")),
            "The call was not sent to backend `it`: a line break in a header.",
        ),
    ):
        assert str(error) == text


async def test_what_anthropic_does_not_have_is_refused_unsent() -> None:
    spec = BackendSpec("it", "anthropic", "claude", base_url="http://127.0.0.1:9")
    backend = AnthropicBackend(spec, lambda: NOW_MS)
    messages = [{"role": "user", "content": "a"}]
    for body in (
        OpenAIBody(path="embeddings", body={"input": "a"}),
        OpenAIBody(path="chat/completions", body={"messages": messages, "n": 2, "max_tokens": 5}),
    ):
        call = CallRequest(call_id="c", model="m", openai=body, deadline_at_ms=NOW_MS)
        with pytest.raises(BackendUnsuited) as refused:
            await backend.call(call, timeout_ms=1_000.0)
        assert refused.value.unsent
        assert str(refused.value).startswith("The call was not sent to backend `it`: ")
    await backend.close()
