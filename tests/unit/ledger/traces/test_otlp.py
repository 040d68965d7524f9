"""How traces are sent: in requests of bounded size, away from the event loop."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from hocket.kit.traces.assembly import Trace
from hocket.ledger.traces import otlp
from hocket.ledger.traces.answers import Refusal
from hocket.ledger.traces.otlp import OtlpSender, Sent
from hocket.schemas.tracing.spans import Span

SPAN = Span("1" * 32, "2" * 16, None, "r", "a", "internal", "worker", 1, 2)


class Exporter:
    """Takes requests, and answers each as it is told."""

    def __init__(self, sender: OtlpSender, answers: Sequence[Refusal | None]) -> None:
        self.session = sender._session
        self.answers = list(answers)
        self.requests: list[int] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.requests.append(len(spans))
        refusal = self.answers.pop(0)
        if refusal is None:
            return SpanExportResult.FAILURE
        self.session.refusal = refusal
        return SpanExportResult.SUCCESS


def sender_to(
    monkeypatch: pytest.MonkeyPatch, *answers: Refusal | None
) -> tuple[OtlpSender, Exporter]:
    monkeypatch.setattr(otlp, "MAX_SPANS", 4)
    sender = OtlpSender("http://127.0.0.1:1/v1/traces")
    exporter = Exporter(sender, answers)
    monkeypatch.setattr(sender, "_exporter", exporter)
    return sender, exporter


async def test_spans_are_converted_in_a_thread_part_by_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, exporter = sender_to(monkeypatch, Refusal(), Refusal(), Refusal())
    threads: list[int] = []
    begun: list[int] = []
    readable = OtlpSender._readable

    def noted(self: OtlpSender, span: Span) -> Any:
        threads.append(threading.get_ident())
        begun.append(len(exporter.requests))
        return readable(self, span)

    monkeypatch.setattr(OtlpSender, "_readable", noted)
    traces = [Trace("r", SPAN.trace_id, (SPAN,) * spans) for spans in (3, 7)]
    assert await sender.send(traces) == Sent(accepted=True)
    assert exporter.requests == [4, 4, 2]
    assert threading.get_ident() not in threads
    assert begun == [0] * 4 + [1] * 4 + [2] * 2


async def test_what_the_requests_of_a_trace_refuse_is_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, _ = sender_to(monkeypatch, Refusal(2, "no"), Refusal(99, "none"), Refusal())
    sent = await sender.send([Trace("r", SPAN.trace_id, (SPAN,) * 10)])
    assert sent == Sent(accepted=True, refused_spans=2 + 4, message="none")


async def test_nothing_is_sent_after_a_request_that_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, exporter = sender_to(monkeypatch, Refusal(), None, Refusal())
    assert not (await sender.send([Trace("r", SPAN.trace_id, (SPAN,) * 10)])).accepted
    assert exporter.requests == [4, 4]
