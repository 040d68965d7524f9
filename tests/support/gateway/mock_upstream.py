"""A local OpenAI-compatible server for tests: gives scripted answers and records requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a chat stream."""
    choice = {"index": 0, "delta": fields, "finish_reason": reason}
    return {"id": "s", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}


TIDAL = (
    delta(role="assistant", content=""),
    delta(content="ti"),
    delta(content="dal"),
    delta("stop"),
    {
        "id": "s",
        "object": "chat.completion.chunk",
        "model": "m-1",
        "choices": [],
        "usage": {
            "prompt_tokens": 120,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 20},
        },
    },
)
"""The answer `tidal` as a stream."""


class Upstream:
    """The server's address, the bodies that it received, and the answer that it gives next."""

    def __init__(self) -> None:
        self.base_url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.queries: list[str] = []
        self.called = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.answer: Answer = self.completes

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.paths.append(request.path)
        self.queries.append(request.query_string)
        self.called.set()
        return await self.answer(request, body)

    async def completes(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        """Answer at once: the text `tidal`, 120 tokens in (20 cached), 7 out; [i, 0.5] per text."""
        if body.get("stream"):
            return await self.streams(*TIDAL)(request, body)
        if request.path.endswith("/embeddings"):
            data = [
                {"index": index, "embedding": [float(index), 0.5]}
                for index in reversed(range(len(body["input"])))
            ]
            return web.json_response({"data": data, "usage": {"prompt_tokens": 11}})
        text = json.dumps({"port": "Brest"}) if "response_format" in body else "tidal"
        return web.json_response(
            {
                "choices": [
                    {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                ],
                "usage": {
                    "prompt_tokens": 120,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 20},
                },
            }
        )

    async def hangs(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        """Answer when the test releases it; record if the caller disconnects before that."""
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await self.completes(request, body)

    def streams(self, *events: Any, then: str = "[DONE]") -> Answer:
        """Return an answer of server-sent events: objects as JSON, bytes as they are. `then` is the
        last event; `cut` breaks the connection instead, and `hang` waits for the caller to
        disconnect."""

        async def answer(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for event in events:
                data = event if isinstance(event, bytes) else json.dumps(event).encode()
                await response.write(b"data: " + data + b"\n\n")
            if then == "hang":
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            if then == "cut":
                assert request.transport is not None
                request.transport.abort()
            elif then:
                await response.write(f"data: {then}\n\n".encode())
            return response

        return answer

    def fails(self, status: int, **headers: str) -> Answer:
        """Return an answer with this status."""

        async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
            error = {"error": {"message": f"no luck ({status})"}}
            return web.json_response(error, status=status, headers=headers)

        return answer

    def sends(self, body: Any, status: int = 200) -> Answer:
        """Return an answer with this body, JSON unless it is bytes."""

        async def answer(request: web.Request, _: dict[str, Any]) -> web.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return web.Response(body=content, status=status, content_type="application/json")

        return answer


@asynccontextmanager
async def running_upstream(upstream: Upstream | None = None) -> AsyncIterator[Upstream]:
    """Serve on a free port of the loopback interface."""
    upstream = upstream or Upstream()
    app = web.Application()
    app.router.add_post("/v1/{tail:.*}", upstream.handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    upstream.base_url = f"http://127.0.0.1:{port}/v1"
    try:
        yield upstream
    finally:
        await runner.cleanup()
