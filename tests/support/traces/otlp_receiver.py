"""An OTLP/HTTP receiver like that of a collector: it decodes the protocol's messages and keeps the
spans."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Received:
    """A span as received, with its resource's attributes."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    status: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Receiver:
    """The spans received. Requests are answered with `status`; spans are kept only while it is 200."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    status: int = 200
    refused: int = 0
    refused_runs: set[str] = field(default_factory=set)
    """Requests that contain a span of one of these runs are refused."""
    rejected: int = 0
    """How many spans each answer says were refused, although the request is accepted."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def traces(self) -> dict[str, list[Received]]:
        found: dict[str, list[Received]] = {}
        for span in self.spans:
            found.setdefault(span.trace_id, []).append(span)
        return found

    async def until(self, traces: int, timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while len(self.traces()) < traces:
                self.arrived.clear()
                await self.arrived.wait()

    async def take(self, request: web.Request) -> web.Response:
        if self.status != 200:
            self.refused += 1
            return web.Response(status=self.status)
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        spans: list[Received] = []
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                spans += [_received(span, resource) for span in of_scope.spans]
        if any(span.attributes["hocket.run.id"] in self.refused_runs for span in spans):
            self.refused += 1
            return web.Response(status=400)
        self.spans += spans
        self.arrived.set()
        answer = ExportTraceServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_spans = self.rejected
            answer.partial_success.error_message = "too large"
        body = answer.SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")


@asynccontextmanager
async def running_receiver() -> AsyncIterator[Receiver]:
    """Serve a receiver on a free port until the block ends."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.status.code,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
