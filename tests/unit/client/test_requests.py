"""What a request sends, what an answer means, and what is sent again."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from hocket.cli.remote.api import path
from hocket.client.async_of_runs import AsyncRunsApi
from hocket.client.errors import AnswerUnreadable, RequestRefused
from hocket.client.live import LastEvent, RunStream, read_event
from hocket.client.requests import (
    MAX_TRIES,
    ApiRequest,
    given,
    identity_headers,
    path_of,
    pause_s,
    read_answer,
)
from hocket.client.sync_of_runs import RunsApi
from hocket.schemas.administration.schedules import ScheduledTask
from hocket.schemas.errors import ErrorInfo, InvalidInput
from hocket.schemas.messages import Priority
from hocket.schemas.rest import RunReceipt, RunResult, RunSubmission, Sent, StepDetail

URL = "http://hocket.example"
READ = ApiRequest(method="GET", path="/v1/runs", may_repeat=True)
WRITE = ApiRequest(method="POST", path="/v1/runs/r/signals", body={})


def test_what_a_path_names_is_quoted() -> None:
    assert path_of("runs", "a/b?c", 7) == "/v1/runs/a%2Fb%3Fc/7"


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown() -> None:
    assert identity_headers("hk_a_b\n", None)["Authorization"] == "Bearer hk_a_b"
    for key in ("hk_secret\nhk_other", "hk_secret\u20ac"):
        with pytest.raises(InvalidInput, match="`key`") as refused:
            identity_headers(key, None)
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidInput, match="`tenant`"):
        identity_headers(None, "\xe4")


@pytest.mark.parametrize(("key", "is_sent"), [("", True), ("order-17", True), (None, False)])
async def test_an_empty_key_is_sent_and_not_replaced(key: str | None, is_sent: bool) -> None:
    """It is refused; with a new key instead, each call would be a run of its own."""
    sent: list[ApiRequest] = []

    async def send(request: ApiRequest, _kind: Any) -> None:
        sent.append(request)

    RunsApi(lambda request, _kind: sent.append(request)).submit("p", idempotency_key=key)
    await AsyncRunsApi(send).submit("p", idempotency_key=key)
    for request in sent:
        assert (request.body["idempotency_key"] == key) is is_sent
    assert len(sent) == 2


def test_a_query_has_what_is_given() -> None:
    query = {
        "after": None,
        "deadline_missed": True,
        "since": datetime(2026, 11, 23, tzinfo=UTC),
        "min_cost_usd": Decimal("1E-7"),
        "labels": {"customer": "a b,c"},
    }
    assert ApiRequest(method="GET", path="/v1/runs", query=query).url == (
        "/v1/runs?deadline_missed=true&since=2026-11-23T00%3A00%3A00%2B00%3A00"
        "&min_cost_usd=0.0000001&labels=customer%3Da%2520b%252Cc"
    )


def test_no_labels_are_no_filter() -> None:
    query: dict[str, Any] = {"labels": {}, "pipeline": "", "limit": 0, "paused": False}
    request = ApiRequest(method="GET", path="/v1/runs", query=query)
    assert request.url == "/v1/runs?pipeline=&limit=0&paused=false"
    stream = RunStream.of_list({"labels": {}})
    assert stream.request(LastEvent()).url == "/v1/runs/events"


def test_a_body_is_json_and_keeps_the_nulls_of_its_input() -> None:
    body = given({"pipeline": "p", "version": None, "input": {"a": None}})
    request = ApiRequest(method="POST", path="/v1/runs", body=body)
    assert json.loads(request.content() or b"") == {"pipeline": "p", "input": {"a": None}}
    assert request.sent_headers() == {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("usd", "sent"),
    [("1E+2", "100"), ("0.0000001", "0.0000001"), ("0.50", "0.50"), ("1E-7", "0.0000001")],
)
def test_an_amount_in_a_body_has_no_exponent(usd: str, sent: str) -> None:
    body = {"budget_usd": Decimal(usd), "input": {"n": 1}}
    content = ApiRequest(method="POST", path="/v1/runs", body=body).content()
    assert json.loads(content or b"") == {"budget_usd": sent, "input": {"n": 1}}


@pytest.mark.parametrize("usd", ["1E+2", "1E-7"])
def test_an_amount_inside_a_task_has_no_exponent_either(usd: str) -> None:
    fields: dict[str, Any] = {"pipeline": "p", "budget_usd": Decimal(usd)}
    bodies: list[Any] = [
        {"task": fields},
        {"task": ScheduledTask(pipeline="p").model_copy(update=fields)},
        {"runs": [fields, RunSubmission(pipeline="p").model_copy(update=fields)]},
        {"filter": {"min_cost_usd": Decimal(usd)}},
    ]
    for body in bodies:
        content = ApiRequest(method="POST", path="/v1/x", body=body).content() or b""
        assert b"E" not in content, content
        assert format(Decimal(usd), "f").encode() in content
        assert usd == str(fields["budget_usd"])  # what was given is unchanged


def test_a_model_in_a_body_is_sent_with_the_names_of_the_api() -> None:
    task = RunSubmission(pipeline="p", priority=Priority.BATCH, input={"a": None})
    content = ApiRequest(method="POST", path="/v1/x", body={"runs": [task]}).content()
    (sent,) = json.loads(content or b"")["runs"]
    assert (sent["class"], sent["input"]) == ("batch", {"a": None})


def test_the_callers_own_json_is_sent_as_it_is() -> None:
    own = {"n": Decimal("1E+2"), "rows": [[Decimal("1E-7")]]}
    for body in ({"input": own}, {"runs": [{"pipeline": "p", "input": own}]}):
        content = ApiRequest(method="POST", path="/v1/x", body=body).content() or b""
        assert b'"1E+2"' in content
        assert b'"1E-7"' in content


def test_a_text_is_sent_as_it_is_and_a_revision_as_its_etag() -> None:
    request = ApiRequest(
        method="PUT", path="/v1/x", body="pipeline: p", headers={"if-match": 3, "traceparent": None}
    )
    assert request.content() == b"pipeline: p"
    assert request.sent_headers() == {"if-match": '"3"', "Content-Type": "application/yaml"}


def test_an_answer_is_read_as_what_it_is() -> None:
    receipt = {"run_id": "r", "pipeline": "p", "status": "accepted", "url": "/v1/runs/r"}
    read = read_answer(RunReceipt | RunResult, URL, 202, json.dumps(receipt).encode())
    assert isinstance(read, RunReceipt)
    assert read_answer(None, URL, 204, b"") is None


def test_what_a_newer_platform_adds_is_no_fault() -> None:
    sent = {"run_id": "r", "news": 1}
    with pytest.raises(AnswerUnreadable):
        read_answer(Sent, URL, 202, b'{"news": 1}')
    assert read_answer(dict, URL, 200, json.dumps(sent).encode()) == sent


def test_a_refusal_has_the_apis_error() -> None:
    info = ErrorInfo(code="run_unknown", message="No run r.", field="run_id")
    problem = {
        "title": "Not Found",
        "status": 404,
        "detail": "No run r.",
        "code": "run_unknown",
        "error": info.model_dump(mode="json"),
    }
    with pytest.raises(RequestRefused, match=r"run_unknown: No run r\.") as refused:
        read_answer(Sent, URL, 404, json.dumps(problem).encode())
    assert (refused.value.status, refused.value.error) == (404, info)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b'{"error": 1}'])
def test_what_is_not_of_the_api_is_said_to_be_so(body: bytes) -> None:
    with pytest.raises(AnswerUnreadable, match=r"http://hocket\.example answered 502"):
        read_answer(Sent, URL, 502, body)


@pytest.mark.parametrize(
    ("request_", "status", "is_sent_again"),
    [
        (READ, None, True),
        (READ, 503, True),
        (READ, 429, True),
        (READ, 404, False),
        (READ, 500, False),
        (WRITE, None, False),  # it may have been done
        (WRITE, 503, False),
        (WRITE, 429, True),
    ],
)
def test_only_what_does_no_harm_is_sent_again(
    request_: ApiRequest, status: int | None, is_sent_again: bool
) -> None:
    assert (pause_s(request_, 1, status) is not None) is is_sent_again
    assert pause_s(request_, MAX_TRIES, status) is None


def test_a_pause_is_as_long_as_the_api_asks_for_within_a_bound() -> None:
    assert 3.0 <= (pause_s(READ, 1, 429, "3") or 0) <= 3.2
    assert (pause_s(READ, 1, 429, "86400") or 0) <= 20.2
    assert (pause_s(READ, 1, 429, "Tue, 01 Jan 2030 00:00:00 GMT") or 0) <= 0.2


def test_a_stream_goes_on_behind_its_last_event() -> None:
    stream, last = RunStream.of_run("r"), LastEvent()
    assert "Last-Event-ID" not in stream.request(last).sent_headers()
    last.note("step", "7.0")
    last.note("step", "")  # of several of one fact only the last has a place
    assert stream.request(last).sent_headers()["Last-Event-ID"] == "7.0"
    last.note("reset", "")
    assert "Last-Event-ID" not in stream.request(last).sent_headers()


def test_an_event_that_is_not_known_is_passed_over() -> None:
    assert read_event(RunStream.of_run("r"), URL, "news", "{}") is None
    with pytest.raises(AnswerUnreadable):
        read_event(RunStream.of_run("r"), URL, "step", "{}")
    assert StepDetail in RunStream.of_run("r").kinds.values()


@pytest.mark.parametrize("value", [object(), "\ud800", b"\xff"], ids=["object", "half", "bytes"])
def test_a_body_that_is_no_json_is_refused_as_one(value: object) -> None:
    request = ApiRequest(method="POST", path="/v1/runs", body={"input": {"x": value}})
    with pytest.raises(InvalidInput, match="`body` is not valid: it cannot be written as JSON"):
        request.content()
    with pytest.raises(InvalidInput, match="`body` is not valid"):
        ApiRequest(method="PUT", path="/v1/x", body="\ud800").content()


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_part_that_would_lead_to_another_path_is_refused(part: str) -> None:
    for made in (path_of, path):
        with pytest.raises(InvalidInput, match="is no id and no name"):
            made("runs", part, "cancel")
    assert path_of("runs", "\ud800") == path("runs", "\ud800") == "/v1/runs/%3F"
