"""Keys, identities, errors and streams of the HTTP door, without a network."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answers import CompletionAnswers
from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.config.access import Key, hashed, parse_access
from hocket.gateway.core.errors import BackendsBusy, RoutingInvalid
from hocket.gateway.core.protocols.openai_api import CHAT
from hocket.schemas.access.keys import AccessDenied, Principal, sent_key
from hocket.schemas.errors import ErrorClass, ErrorInfo, InvalidInput
from hocket.schemas.messages import CallReply, Priority
from hocket.schemas.openai.answers import ResponseOptions
from hocket.schemas.openai.failures import failure

NOW_MS = 1_800_000_000_000.0
SHA = hashed("hk-1")


def test_a_key_is_known_by_its_hash() -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA, "tenant": "acme"}]}, {})
    key = access.key("hk-1")
    assert (key.name, key.tenant, key.models) == ("ci", "acme", None)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "hk-1"},
        {"authorization": "Basic hk-1"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer hk-2"},
        {"x-api-key": "hk-2"},
        {"x-api-key": "hk-1", "authorization": "Bearer hk-2"},
    ],
)
def test_what_is_no_known_key_is_refused(headers: Mapping[str, str]) -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA}]}, {})
    with pytest.raises(AccessDenied):
        access.key(sent_key(headers))


@pytest.mark.parametrize("headers", [{"authorization": "bearer hk-1"}, {"x-api-key": "hk-1"}])
def test_a_key_is_sent_as_openai_or_as_anthropic_has_it(headers: Mapping[str, str]) -> None:
    access = parse_access({"keys": [{"name": "ci", "sha256": SHA}]}, {})
    assert access.key(sent_key(headers)).name == "ci"


def test_a_door_is_open_only_where_the_configuration_says_so() -> None:
    assert not parse_access(None, {}).open
    assert not parse_access({"open": False}, {}).open
    assert parse_access({"open": True}, {}).open


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ([], "access"),
        ({"keys": []}, "access.keys"),
        ({"key": "x"}, "access.key"),
        ({"keys": [{"name": "ci", "sha256": "hk-1"}]}, "access.keys[0].sha256"),
        ({"open": True, "keys": [{"name": "ci", "sha256": SHA}]}, "access.open"),
        ({"open": "yes"}, "access.open"),
        ({"keys": [{"sha256": SHA}]}, "access.keys[0].name"),
        ({"keys": [{"name": "a", "sha256": SHA}] * 2}, "access.keys[1].sha256"),
        ({"keys": [{"name": "a", "sha256": SHA, "tenant": "a.b"}]}, "access.keys[0].tenant"),
    ],
)
def test_a_mistake_in_the_keys_is_named(section: Any, field: str) -> None:
    with pytest.raises(RoutingInvalid) as refused:
        parse_access(section, {})
    assert refused.value.fields["field"] == field


@pytest.mark.parametrize(
    ("headers", "run_id"),
    [
        ({"x-session-id": "s"}, "s"),
        ({"x-session-id": "s", "x-litellm-trace-id": "t"}, "t"),
        ({"x-session-id": "s", "x-litellm-trace-id": "t", "X-Hocket-Run-Id": "r"}, "r"),
        ({}, None),
    ],
)
def test_our_own_header_names_the_run_before_others(
    headers: Mapping[str, str], run_id: str | None
) -> None:
    assert identity.attribution(headers, None).run_id == run_id


@pytest.mark.parametrize(
    ("headers", "stream", "expected_ms"),
    [
        ({}, False, 600_000),
        ({"X-Stainless-Read-Timeout": "20"}, False, 20_000),
        ({"X-Stainless-Read-Timeout": "20"}, True, 600_000),
        ({"X-Stainless-Read-Timeout": "None"}, False, 600_000),
        ({"X-Stainless-Read-Timeout": "20", "X-Hocket-Timeout-Ms": "90"}, False, 90),
    ],
)
def test_a_call_may_take_as_long_as_its_caller_says(
    headers: Mapping[str, str], stream: bool, expected_ms: float
) -> None:
    assert identity.timeout_ms(headers, stream=stream) == expected_ms


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hocket-Run-Id": ""},
        {"X-Hocket-Run-Id": "x" * 257},
        {"X-Hocket-Version": "-1"},
        {"X-Hocket-Version": "1.5"},
        {"X-Hocket-Attempt": "٣"},
        {"X-Hocket-Tenant": "a.b"},
    ],
)
def test_an_identity_that_cannot_be_booked_is_refused(headers: Mapping[str, str]) -> None:
    with pytest.raises(InvalidInput):
        identity.attribution(headers, None)


@pytest.mark.parametrize(
    ("headers", "body", "labels"),
    [
        ({}, {}, None),
        ({"X-Hocket-Run-Labels": "team=search,who=%C3%A4%2C"}, {}, {"team": "search", "who": "ä,"}),
        (
            {"X-Hocket-Run-Labels": "team=search"},
            {"metadata": {"team": "other", "tier": "gold"}, "user": "u-1"},
            {"team": "search", "tier": "gold", "user": "u-1"},
        ),
        (
            {},
            {"metadata": {"no label": "x", "n": 1, "long": 257 * "x", "user": "said"}, "user": "u"},
            {"user": "said"},
        ),
        ({}, {"metadata": "text", "user": 7}, None),
        (
            {},
            {"metadata": {f"k{number}": "v" for number in range(40)}},
            {f"k{number}": "v" for number in range(16)},
        ),
    ],
)
def test_header_metadata_and_user_say_the_labels_of_a_call(
    headers: Mapping[str, str], body: Mapping[str, Any], labels: dict[str, str] | None
) -> None:
    assert identity.attribution(headers, None, body).labels == labels


def test_of_metadata_without_an_end_little_is_looked_at() -> None:
    looked_at = 0

    class Name(str):
        def __len__(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().__len__()

    metadata = {Name(f"no label {number}"): "x" for number in range(10_000)}
    body = {"metadata": metadata, "user": "ada"}
    assert identity.attribution({}, None, body).labels == {"user": "ada"}
    assert looked_at <= identity.MAX_METADATA


@pytest.mark.parametrize("value", ["team", "te am=x", "team=%00", "team=%e4"])
def test_a_header_of_labels_that_is_wrong_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="X-Hocket-Run-Labels"):
        identity.attribution({"X-Hocket-Run-Labels": value}, None)


def test_what_a_backend_must_be_is_read() -> None:
    headers = {"X-Hocket-Labels": "precision=fp8, gpu=h100", "X-Hocket-Residency": "eu"}
    assert identity.requirements(headers) == {
        "labels": {"precision": "fp8", "gpu": "h100"},
        "residency": "eu",
    }
    assert identity.requirements({}) is None
    assert identity.priority({"X-Hocket-Priority": "batch"}) is Priority.BATCH


@pytest.mark.parametrize("given", ["", "-1", "1e99", "nan", "a lot"])
def test_a_budget_that_is_no_amount_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        identity.budget_usd({"X-Hocket-Budget-Usd": given})
    assert identity.budget_usd({"X-Hocket-Budget-Usd": "0.25"}) == Decimal("0.25")


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


def test_a_stream_without_chunks_comes_in_one_piece() -> None:
    """A call that joined another one hears nothing while it is made."""
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1, wants_usage=True))
    reply = CallReply(call_id="c", text="tidal", input_tokens=3, output_tokens=2)
    *events, done = streaming.end(reply).decode().strip().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert done == "data: [DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "tidal"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 5


def test_usage_that_nobody_asked_for_is_left_out() -> None:
    streaming = CompletionAnswers(ResponseOptions(CHAT, "m", "c", 1))
    piece = {"choices": [{"delta": {"content": "x"}}], "usage": None, "model": "m-1"}
    sent = streaming.chunk(Chunk("x", openai=piece)).decode()
    assert json.loads(sent.removeprefix("data: ")) == {
        "choices": [{"delta": {"content": "x"}}],
        "model": "m",
    }
    assert streaming.chunk(Chunk("", openai={"choices": [], "usage": {}}, is_usage=True)) == b""
    assert streaming.end(CallReply(call_id="c")) == b"data: [DONE]\n\n"


def test_a_call_is_charged_to_its_key_and_nobody_says_so_himself() -> None:
    bearer = Principal("0123456789ab", "app", "acme", "developer", frozenset())
    key = Key("0123456789ab", "acme", bearer=bearer)
    body = {"metadata": {"hocket.key": "ffffffffffff", "team": "search"}, "user": "ada"}
    said = identity.attribution({"X-Hocket-Run-Labels": "customer=c"}, key, body)
    assert said.labels == {
        "customer": "c", "hocket.key": "0123456789ab", "team": "search", "user": "ada",
    }  # fmt: skip
    assert identity.attribution({}, None, body).labels == {"team": "search", "user": "ada"}
    many = ",".join(f"l{number}=x" for number in range(16))
    for labels in ("hocket.key=ffffffffffff", "hocket.team=x", many):
        with pytest.raises(InvalidInput):
            identity.attribution({"X-Hocket-Run-Labels": labels}, key)


def test_a_budget_may_be_a_keys() -> None:
    section = {"labels": {"hocket.key=0123456789ab": {"usd": 5, "per": "day"}}}
    assert budget_rules.read(section, {}) != budget_rules.read(None, {})
