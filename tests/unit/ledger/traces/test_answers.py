"""What a collector's answer says about spans that it refused."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from hocket.ledger.traces.answers import MAX_MESSAGE_CHARS, NO_REFUSAL, Refusal, refusal_in

PROTOBUF, JSON = "application/x-protobuf", "application/json; charset=utf-8"


def answer(spans: int, message: str = "") -> bytes:
    told = ExportTraceServiceResponse()
    told.partial_success.rejected_spans = spans
    told.partial_success.error_message = message
    return bytes(told.SerializeToString())


@pytest.mark.parametrize(
    ("body", "content_type", "refusal"),
    [
        (b"", PROTOBUF, NO_REFUSAL),
        (answer(9, "TOO_LARGE"), PROTOBUF, Refusal(9, "TOO_LARGE")),
        (answer(9, "TOO_LARGE"), "", Refusal(9, "TOO_LARGE")),
        (answer(0, "use https"), PROTOBUF, Refusal(0, "use https")),
        (answer(-5), PROTOBUF, NO_REFUSAL),
        (b"{}", JSON, NO_REFUSAL),
        (b'{"partialSuccess": {"rejectedSpans": "9"}, "x": 1}', JSON, Refusal(9, "")),
        (b'{"partialSuccess": {"rejectedSpans": 9, "errorMessage": "no"}}', JSON, Refusal(9, "no")),
    ],
)
def test_refused_spans_are_read_from_protobuf_and_json(
    body: bytes, content_type: str, refusal: Refusal
) -> None:
    assert refusal_in(body, content_type) == refusal


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    "body",
    [
        b"ok",
        b"\xff" * 99,
        b"{",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"partialSuccess": {"rejectedSpans": 1e400}}',
        b'{"partialSuccess": {"rejectedSpans": ' + 9_000 * b"9" + b"}}",
        b'{"partialSuccess": 3}',
        b"null",
        b"\x00\xd8",
    ],
    ids=range(10),
)
def test_another_answer_refuses_nothing(body: bytes, content_type: str) -> None:
    assert refusal_in(body, content_type) == NO_REFUSAL


def test_a_message_is_cut() -> None:
    assert len(refusal_in(answer(1, "x" * 9_999), PROTOBUF).message) == MAX_MESSAGE_CHARS
