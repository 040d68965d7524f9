"""A backend for Anthropic's Messages API, or an endpoint that speaks it.

To the gateway a call is a chat completion of OpenAI's API; `core/protocols/anthropic/` translates
it to the Messages API and the answer back, so callers get the same as from any other backend.
Embeddings are not available.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from opentelemetry import propagate

from hocket.gateway.backends.first_chunks import FirstChunks, at_once
from hocket.gateway.backends.http_endpoint import HttpEndpoint
from hocket.gateway.backends.large_requests import converted, encoded
from hocket.gateway.backends.openai_http import EVENT_STREAM, REQUEST_ID
from hocket.gateway.backends.protocol import (
    BackendError,
    BackendReplyMalformed,
    CallUnsuited,
    Chunk,
    Chunks,
    StreamBroken,
)
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.anthropic.reply import EventStream, ReplyHead, chat_completion
from hocket.gateway.core.protocols.anthropic.request import (
    AnswerTool,
    NotTranslatable,
    Outgoing,
    as_chat,
    outgoing,
)
from hocket.gateway.core.protocols.openai_api import (
    CHAT,
    EMBEDDINGS,
    Assembly,
    ReplyUnreadable,
    completion,
    path_of,
    plain,
)
from hocket.gateway.core.protocols.openai_api import outgoing as chat_body
from hocket.schemas.messages import CallRequest, Completion

API_VERSION = "2023-06-01"
PATH = "v1/messages"


class AnthropicBackend:
    """Calls `spec.base_url` with the model `spec.target`; must be built inside a running event loop."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        self._spec = spec
        self._now_ms = now_ms
        headers = {"Content-Type": "application/json", "anthropic-version": API_VERSION}
        secret = "" if spec.api_key is None else spec.api_key.get_secret_value()
        if secret:
            headers["x-api-key"] = secret
        base_url = spec.base_url.removesuffix("/messages").removesuffix("/v1")
        self._endpoint = HttpEndpoint(
            spec.name, base_url, headers=headers, limit=spec.limit, now_ms=now_ms, secret=secret
        )

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Post the call and return its completion; the protocol lists the errors."""
        if path_of(request) == EMBEDDINGS:
            raise self._refused("Anthropic has no embeddings")
        asked, content = await converted(request, partial(self._asked, stream=chunks is not None))
        if path_of(request) != CHAT:
            request = plain(request)
        headers = {REQUEST_ID: request.call_id}
        propagate.inject(headers)
        if chunks is not None:
            return await self._streamed(request, asked, content, headers, timeout_ms, chunks)
        return await self._endpoint.ask(
            "POST",
            PATH,
            content,
            headers=headers,
            timeout_ms=timeout_ms,
            read=lambda reply: self._read(request, reply.content, asked.answer_tool),
        )

    async def close(self) -> None:
        """Close the connection pool."""
        await self._endpoint.close()

    def _asked(self, request: CallRequest, *, stream: bool) -> tuple[Outgoing, bytes]:
        """Return the request for a call, and its body as JSON."""
        body = chat_body(request, self._spec.target, stream=False)
        try:
            if path_of(request) != CHAT:
                body = as_chat(body)
            asked = outgoing(body, self._spec.pass_fields, stream=stream)
        except NotTranslatable as error:
            raise self._refused(f"`{error.field}`: {error.reason}") from error
        return asked, encoded(request, asked.body)

    def _refused(self, reason: str) -> CallUnsuited:
        return CallUnsuited(component=self._spec.name, reason=reason)

    async def _streamed(
        self,
        request: CallRequest,
        asked: Outgoing,
        content: bytes,
        headers: dict[str, str],
        timeout_ms: float,
        chunks: Chunks,
    ) -> Completion:
        stream = EventStream(self._head(request), asked.answer_tool)
        assembly, first = Assembly(request), FirstChunks(chunks)
        began = False
        try:
            async with self._endpoint.opened(
                "POST", PATH, content, headers=headers, timeout_ms=timeout_ms
            ) as response:
                began = True
                if response.content_type != EVENT_STREAM:
                    whole = await self._endpoint.bounded(response)
                    began = False  # a whole reply says itself what it cost
                    made = await self._endpoint.read(
                        response, whole, partial(self._read, request, answer=asked.answer_tool)
                    )
                    await chunks(at_once(made, is_long=self._endpoint.is_long(response)))
                    return made
                async for event in self._endpoint.events(response, assembly):
                    if event.get("type") == "error":
                        began = assembly.began
                        raise self._endpoint.errors.reported(event.get("error"), in_stream=True)
                    for chunk in self._chunks(request, event, stream, assembly):
                        await first.send(chunk, spoke=assembly.spoke)
                    if stream.ended:
                        break
                    del event  # a large one must not be held until the next one comes
        except BackendError as error:
            if began and not (error.spent.input_tokens or error.spent.output_tokens):
                error.spent = assembly.spent
            raise
        if not assembly.ended:
            raise StreamBroken(
                component=self._spec.name, reason="it ended too early", spent=assembly.spent
            )
        return assembly.completion()

    def _chunks(
        self,
        request: CallRequest,
        event: dict[str, Any],
        stream: EventStream,
        assembly: Assembly,
    ) -> list[Chunk]:
        """Return the chunks for an event, also adding them to `assembly`;
        usage is sent with the last one."""
        try:
            made = stream.add(event)
            pieces = [assembly.add(one) for one in made]
            if stream.meters and stream.metered is not None:
                assembly.add(stream.metered)
        except ReplyUnreadable as error:
            raise self._malformed(error, error.spent or assembly.spent) from error
        written = assembly.spent.output_tokens
        as_it_came = request.openai is not None
        found = [
            Chunk(piece.text, openai=one if as_it_came else None, output_tokens=written)
            for piece, one in zip(pieces, made, strict=True)
        ]
        if stream.ended and assembly.settled and as_it_came:
            found.append(Chunk("", openai=stream.metered, is_usage=True, output_tokens=written))
        return found

    def _read(self, request: CallRequest, content: bytes, answer: AnswerTool | None) -> Completion:
        reply = self._endpoint.object_of(content)
        if reply.get("type") == "error":
            raise self._endpoint.errors.reported(reply.get("error"))
        try:
            return completion(request, chat_completion(reply, self._head(request), answer))
        except ReplyUnreadable as error:
            raise self._malformed(error, error.spent, len(content)) from error

    def _head(self, request: CallRequest) -> ReplyHead:
        return ReplyHead(request.call_id, self._spec.target, int(self._now_ms() / 1000))

    def _malformed(
        self, error: ReplyUnreadable, spent: Completion | None, read_bytes: int | None = None
    ) -> BackendReplyMalformed:
        reason = error.reason.replace("`choices[0].message`", "`content`")
        return self._endpoint.errors.malformed(reason, spent=spent, read_bytes=read_bytes)
