"""Who asks, for how long and for what, by the headers of a request."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.api.http import identity
from hocket.gateway.core.config.access import Key
from hocket.schemas.access.keys import Principal
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import Priority


@pytest.mark.parametrize(
    ("headers", "run_id"),
    [
        ({"x-session-id": "s"}, "s"),
        ({"x-session-id": "s", "x-litellm-trace-id": "t"}, "t"),
        ({"x-session-id": "s", "x-litellm-trace-id": "t", "X-Hocket-Run-Id": "r"}, "r"),
        ({"x-session-id": "s", "x-litellm-trace-id": ""}, "s"),
        ({"x-session-id": ""}, None),
        ({}, None),
    ],
)
def test_our_own_header_names_the_run_before_others(
    headers: Mapping[str, str], run_id: str | None
) -> None:
    assert identity.attribution(headers, None).run_id == run_id


@pytest.mark.parametrize(
    ("given", "call_id"),
    [
        (None, "http:made"),
        ("job", "http:acme:job"),
        ("job:r2", "http:acme:job:r2~"),
        ("job:r2~", "http:acme:job:r2~~"),
        ("job:h", "http:acme:job:h~"),
    ],
)
def test_a_call_has_its_callers_id_but_none_of_a_request(given: str | None, call_id: str) -> None:
    headers = {} if given is None else {"X-Hocket-Call-Id": given}
    assert identity.call_id(headers, "acme", None, "made") == call_id


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
