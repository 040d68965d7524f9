"""A backend that is an OpenAI-compatible HTTP endpoint: chat completions and embeddings."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import propagate

from hocket.gateway.backends.http_endpoint import HttpEndpoint
from hocket.gateway.backends.protocol import BackendReplyMalformed
from hocket.gateway.core.price import MAX_TOKENS
from hocket.gateway.core.prompt import chat_messages
from hocket.gateway.core.table import BackendSpec
from hocket.schemas.messages import CallRequest, Completion


class OpenAIBackend:
    """Calls `spec.base_url` with the model `spec.target`; must be built inside a running event loop."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        self._spec = spec
        headers = {"Content-Type": "application/json"}
        if spec.api_key is not None:
            headers["Authorization"] = f"Bearer {spec.api_key.get_secret_value()}"
        self._endpoint = HttpEndpoint(
            spec.name, spec.base_url, headers=headers, limit=spec.limit, now_ms=now_ms
        )

    async def call(self, request: CallRequest, *, timeout_ms: float) -> Completion:
        """Post the call and return its completion; see the protocol for errors."""
        if request.embed:
            reply = await self._post("embeddings", self._embedding_body(request), timeout_ms)
            return self._embeddings(reply, len(request.embed))
        reply = await self._post("chat/completions", self._chat_body(request), timeout_ms)
        return self._chat(reply, wants_json=request.response_schema is not None)

    async def close(self) -> None:
        """Close the connection pool."""
        await self._endpoint.close()

    def _chat_body(self, request: CallRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._spec.target,
            "messages": chat_messages(request.messages, request.documents),
        }
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.response_schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.response_schema},
            }
        return body

    def _embedding_body(self, request: CallRequest) -> dict[str, Any]:
        return {
            "model": self._spec.target,
            "input": list(request.embed),
            "encoding_format": "float",
        }

    async def _post(self, path: str, body: Mapping[str, Any], timeout_ms: float) -> dict[str, Any]:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        content = json.dumps(body, ensure_ascii=False).encode()
        reply = await self._endpoint.send(
            "POST", path, content, headers=headers, timeout_ms=timeout_ms
        )
        return self._endpoint.object_of(reply.content)

    def _chat(self, reply: dict[str, Any], *, wants_json: bool) -> Completion:
        usage = self._usage(reply)
        try:
            choice = reply["choices"][0]
            text = choice["message"].get("content") or ""
            finish_reason = choice.get("finish_reason") or ""
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._malformed("it has no `choices[0].message`", usage) from error
        if not isinstance(text, str) or not isinstance(finish_reason, str):
            raise self._malformed("the content is not text", usage)
        return usage.model_copy(
            update={
                "text": text,
                "data": _json_or_none(text) if wants_json else None,
                "finish_reason": finish_reason,
            }
        )

    def _embeddings(self, reply: dict[str, Any], expected: int) -> Completion:
        usage = self._usage(reply)
        try:
            items = sorted(reply["data"], key=lambda item: int(item["index"]))
            vectors = tuple(tuple(map(float, item["embedding"])) for item in items)
        except (KeyError, TypeError, ValueError) as error:
            raise self._malformed("it has no `data` with embeddings", usage) from error
        if len(vectors) != expected:
            raise self._malformed(f"{len(vectors)} embeddings for {expected} texts", usage)
        return usage.model_copy(update={"embeddings": vectors, "finish_reason": "stop"})

    def _usage(self, reply: dict[str, Any]) -> Completion:
        usage = reply.get("usage")
        if usage is None:
            return Completion()
        if not isinstance(usage, dict):
            raise self._malformed("`usage` is not an object")
        details = usage.get("prompt_tokens_details")
        return Completion(
            input_tokens=self._count(usage, "prompt_tokens"),
            output_tokens=self._count(usage, "completion_tokens"),
            cached_tokens=(
                self._count(details, "cached_tokens") if isinstance(details, dict) else 0
            ),
        )

    def _count(self, usage: Mapping[str, Any], name: str) -> int:
        value = usage.get(name)
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
            return value
        raise self._malformed(f"`usage.{name}` is not a count of tokens")

    def _malformed(self, reason: str, spent: Completion | None = None) -> BackendReplyMalformed:
        return self._endpoint.malformed(reason, spent=spent)


def _json_or_none(text: str) -> Any:
    """Return the JSON value in a text; the node that asked for a schema judges what came."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
