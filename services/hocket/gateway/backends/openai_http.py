"""A backend for an OpenAI-compatible HTTP endpoint: chat, completions, embeddings, streams.

A stream that ends without a finish reason (of several choices, without that of each, unless it ends
with `[DONE]` or with usage), or that contains an error, is an error, and so is an error with status
200; one instead of an answer costs nothing. A connection that fails once the answer is whole ends it
like any other. If an endpoint sends a complete reply although a stream was requested, that reply is
accepted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from opentelemetry import propagate

from hocket.gateway.backends.first_chunks import FirstChunks, at_once
from hocket.gateway.backends.http_endpoint import HttpEndpoint
from hocket.gateway.backends.large_requests import converted, encoded
from hocket.gateway.backends.protocol import (
    BackendError,
    BackendReplyMalformed,
    BackendReplyTooLarge,
    Chunk,
    Chunks,
    StreamBroken,
)
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.openai_api import (
    EMBEDDINGS,
    Assembly,
    ReplyUnreadable,
    completion,
    limit_field,
    outgoing,
    path_of,
    reported_error,
    usage_at_end,
    withheld_fields,
)
from hocket.schemas.messages import CallRequest, Completion

REQUEST_ID = "X-Request-Id"
EVENT_STREAM = "text/event-stream"


class OpenAIBackend:
    """Calls `spec.base_url` with the model `spec.target`; must be built inside a running event loop."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        self._spec = spec
        headers = {"Content-Type": "application/json"}
        secret = "" if spec.api_key is None else spec.api_key.get_secret_value()
        if secret and spec.key_header == "authorization":
            headers["Authorization"] = f"Bearer {secret}"
        elif secret:
            headers[spec.key_header] = secret
        self._limit_field = spec.max_tokens_field or limit_field(spec.base_url, spec.api_version)
        self._withheld = withheld_fields(spec.base_url, spec.pass_fields)
        self._query = f"?api-version={quote(spec.api_version)}" if spec.api_version else ""
        self._endpoint = HttpEndpoint(
            spec.name,
            spec.base_url,
            headers=headers,
            limit=spec.limit,
            now_ms=now_ms,
            secret=secret,
        )

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        """Post the call and return its completion; the protocol lists the errors."""
        path = path_of(request)
        headers = {REQUEST_ID: request.call_id}
        propagate.inject(headers)
        if chunks is not None and path != EMBEDDINGS:
            return await self._streamed(request, path, headers, timeout_ms, chunks)
        content = await converted(request, partial(self._body, stream=False))
        return await self._endpoint.ask(
            "POST",
            path + self._query,
            content,
            headers=headers,
            timeout_ms=timeout_ms,
            read=lambda reply: self._read(request, reply.content),
        )

    async def close(self) -> None:
        """Close the connection pool."""
        await self._endpoint.close()

    def _body(self, request: CallRequest, *, stream: bool) -> bytes:
        """Return the body that is sent for a call."""
        body = outgoing(
            request,
            self._spec.target,
            stream=stream,
            usage_in_stream=self._spec.usage_in_stream,
            limit_field=self._limit_field,
            withheld=self._withheld,
        )
        return encoded(request, body)

    async def _streamed(
        self,
        request: CallRequest,
        path: str,
        headers: dict[str, str],
        timeout_ms: float,
        chunks: Chunks,
    ) -> Completion:
        content = await converted(request, partial(self._body, stream=True))
        assembly, first = Assembly(request), FirstChunks(chunks)
        began = False
        try:
            async with self._endpoint.opened(
                "POST", path + self._query, content, headers=headers, timeout_ms=timeout_ms
            ) as response:
                began = True
                if response.content_type != EVENT_STREAM:
                    whole = await self._endpoint.bounded(response)
                    began = False  # a whole reply says itself what it cost
                    made = await self._endpoint.read(response, whole, partial(self._read, request))
                    await chunks(at_once(made, is_long=self._endpoint.is_long(response)))
                    return made
                async for event in self._endpoint.events(response, assembly):
                    said = event.get("error") or reported_error(event)
                    if said is not None:
                        began = assembly.began
                        raise self._endpoint.errors.reported(said, in_stream=True)
                    made_of = self._chunk(request, event, assembly)
                    await first.send(made_of, spoke=assembly.spoke)
                    del event, made_of  # a large one must not be held until the next one comes
        except BackendError as error:
            if began and not (error.spent.input_tokens or error.spent.output_tokens):
                error.spent = assembly.spent
            raise
        if not assembly.ended:
            raise StreamBroken(
                component=self._spec.name, reason="it ended too early", spent=assembly.spent
            )
        return assembly.completion()

    def _chunk(self, request: CallRequest, event: dict[str, Any], assembly: Assembly) -> Chunk:
        try:
            piece = assembly.add(event)
        except ReplyUnreadable as error:
            raise self._malformed(error) from error
        return Chunk(
            piece.text,
            openai=event if request.openai is not None else None,
            is_usage=piece.is_usage,
            output_tokens=assembly.spent.output_tokens,
        )

    def _read(self, request: CallRequest, content: bytes) -> Completion:
        try:
            reply = self._endpoint.object_of(content)
        except BackendReplyTooLarge as error:
            error.spent = usage_at_end(request, content)
            raise
        said = reported_error(reply)
        if said is not None and not reply.get("choices"):
            raise self._endpoint.errors.reported(said)
        try:
            made = completion(request, reply)
        except ReplyUnreadable as error:
            raise self._malformed(error, read_bytes=len(content)) from error
        if said is not None:
            broken = self._endpoint.errors.reported(said)
            broken.spent = made
            raise broken
        return made

    def _malformed(
        self, error: ReplyUnreadable, read_bytes: int | None = None
    ) -> BackendReplyMalformed:
        return self._endpoint.errors.malformed(
            error.reason, spent=error.spent, read_bytes=read_bytes
        )
