"""Sends spans as OTLP over HTTP with OpenTelemetry's own exporter.

Besides the endpoint it reads the usual variables: `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_EXPORTER_OTLP_CERTIFICATE` ...
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from time import monotonic
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hocket.kit.traces.assembly import Trace
from hocket.ledger.traces.answers import NO_REFUSAL, Refusal, refusal_in
from hocket.ledger.traces.timed_http import TimedAdapter
from hocket.schemas.tracing.spans import Span

TIMEOUT_S = 10.0
"""The time limit of one request, including the exporter's retries."""
MAX_SPANS = 2_000
"""The most spans in one request."""
MAX_ANSWER_BYTES = 64 * 1024
"""The largest answer accepted; a collector only says how many spans it refused."""
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
_KINDS = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_STATUS = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NS_PER_US = 1_000


class _NotTaken(requests.RequestException):
    """The endpoint's answer is no collector's."""


class BoundedSession(requests.Session):
    """A session that accepts only short and timely answers, and no redirects."""

    def __init__(self) -> None:
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, TimedAdapter())
        self.headers["Accept-Encoding"] = "identity"  # a short answer stays short when it is read
        self.refusal = NO_REFUSAL
        """The spans that the last answer says were refused."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and read from the answer's body which spans were refused.

        Raises RequestException if the answer is longer than MAX_ANSWER_BYTES, does not arrive
        within `timeout`, or is a redirect.
        """
        self.refusal = NO_REFUSAL
        until = monotonic() + options["timeout"]
        answer = super().send(request, **{**options, "stream": True})
        with answer:
            if 300 <= answer.status_code < 400:
                raise _NotTaken(f"a redirect ({answer.status_code}), which is not followed")
            body = bytearray()
            while piece := answer.raw.read1(MAX_ANSWER_BYTES):
                body += piece
                if len(body) > MAX_ANSWER_BYTES or monotonic() > until:
                    raise _NotTaken("an answer that is too long, or takes too long")
        if answer.ok:
            self.refusal = refusal_in(bytes(body), answer.headers.get("Content-Type", ""))
        return answer


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of spans: whether the endpoint accepted the requests, how many spans it refused in
    them nevertheless, and what it said about these or others."""

    accepted: bool
    refused_spans: int = 0
    message: str = ""


class OtlpSender:
    """Sends traces to one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._session = BoundedSession()
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint, timeout=TIMEOUT_S, session=self._session
        )
        release = version("hocket")
        self._scope = InstrumentationScope("hocket", release, SCHEMA_URL)
        self._resources = {
            service: Resource(
                {"service.name": f"hocket-{service}", "service.version": release}, SCHEMA_URL
            )
            for service in ("coordinator", "worker", "gateway")
        }

    async def send(self, traces: Sequence[Trace]) -> Sent:
        """Send traces in requests of at most MAX_SPANS; stop at the first that is not accepted."""
        spans = chain.from_iterable(trace.spans for trace in traces)
        refused_spans, message = 0, ""
        while part := list(islice(spans, MAX_SPANS)):
            # in a thread, part by part: the loop has its turns while a long trace is encoded
            refusal = await asyncio.to_thread(self._export, part)
            if refusal is None:
                return Sent(accepted=False)
            refused_spans += min(refusal.spans, len(part))
            message = refusal.message or message
        return Sent(True, refused_spans, message)

    def _export(self, part: Sequence[Span]) -> Refusal | None:
        """Send one request; return what was refused of it, or None if it was not accepted."""
        result = self._exporter.export([self._readable(span) for span in part])
        return self._session.refusal if result is SpanExportResult.SUCCESS else None

    def close(self) -> None:
        """Close the connections; a request in progress ends soon."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        ended_us = span.started_at_us if span.ended_at_us is None else span.ended_at_us
        return ReadableSpan(
            span.name,
            context=_context(span.trace_id, span.span_id),
            parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
            resource=self._resources[span.service],
            attributes=dict(span.attributes),
            kind=_KINDS[span.kind],
            status=Status(_STATUS[span.status], span.message or None)
            if span.status == "error"
            else Status(_STATUS[span.status]),
            start_time=span.started_at_us * _NS_PER_US,
            end_time=ended_us * _NS_PER_US,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def span_count(traces: Iterable[Trace]) -> int:
    """Return the number of spans in traces."""
    return sum(len(trace.spans) for trace in traces)
