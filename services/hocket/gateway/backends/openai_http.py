"""A backend that is an OpenAI-compatible HTTP endpoint: chat completions and embeddings.

Owns one connection pool. An upstream error becomes the typed error of its status; a cancelled call
closes its connection, which is how such servers learn that nobody waits any more. Redirects are not
followed: they would carry the key elsewhere.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from opentelemetry import propagate

from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnreachable,
)
from hocket.gateway.core.price import MAX_TOKENS
from hocket.gateway.core.prompt import chat_messages
from hocket.gateway.core.table import BackendSpec
from hocket.schemas.messages import CallRequest, Completion

MAX_REPLY_BYTES = 32 * 1024 * 1024
MAX_REASON_CHARS = 500
CONNECT_TIMEOUT_MS = 10_000.0
KEEPALIVE_TIMEOUT_S = 30.0
REST_MS = 1_000.0
"""How long a backend rests after a 429 that does not say."""
MAX_REST_MS = 300_000.0


class OpenAIBackend:
    """Calls `spec.base_url` with the model `spec.target`; must be built inside a running event loop."""

    def __init__(self, spec: BackendSpec, now_ms: Callable[[], float]) -> None:
        self._spec = spec
        self._now_ms = now_ms
        headers = {"Content-Type": "application/json"}
        if spec.api_key is not None:
            headers["Authorization"] = f"Bearer {spec.api_key.get_secret_value()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=spec.limit, keepalive_timeout=KEEPALIVE_TIMEOUT_S),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
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
        await self._session.close()

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
        try:
            async with self._session.post(
                f"{self._spec.base_url}/{path}",
                data=json.dumps(body, ensure_ascii=False).encode(),
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=timeout_ms / 1000,
                    sock_connect=min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000,
                ),
                allow_redirects=False,
            ) as response:
                content = await self._bounded(response)
                if response.status != 200:
                    raise self._failure(response, content)
                return self._object(content)
        except aiohttp.ConnectionTimeoutError as error:
            raise BackendUnreachable(
                component=self._spec.name, reason="the connection timed out"
            ) from error
        except TimeoutError as error:
            raise BackendTimedOut(
                component=self._spec.name, timeout_ms=round(timeout_ms)
            ) from error
        except aiohttp.ClientError as error:
            raise BackendUnreachable(
                component=self._spec.name, reason=str(error) or type(error).__name__
            ) from error

    async def _bounded(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > MAX_REPLY_BYTES:
                response.close()
                raise BackendReplyMalformed(
                    component=self._spec.name, reason=f"it has more than {MAX_REPLY_BYTES} bytes"
                )
        return bytes(content)

    def _failure(self, response: aiohttp.ClientResponse, content: bytes) -> BackendError:
        status = response.status
        fields: dict[str, Any] = {
            "component": self._spec.name,
            "status": status,
            "reason": _reason(content),
        }
        if status == 429:
            now_ms = self._now_ms()
            rest_ms = _rest_ms(response.headers.get("Retry-After"), now_ms)
            return BackendRateLimited(**fields, retry_at_ms=now_ms + rest_ms)
        if status in (401, 403):
            return BackendDenied(**fields)
        if status >= 500 or status == 408:
            return BackendBroken(**fields)
        if status < 400 or status in (404, 405):
            return BackendMisconfigured(**fields)
        return BackendRefused(**fields)

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._malformed(f"not JSON: {_cut(content)}") from error
        if not isinstance(value, dict):
            raise self._malformed(f"not a JSON object: {_cut(content)}")
        return value

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
        return BackendReplyMalformed(component=self._spec.name, reason=reason, spent=spent)


def _json_or_none(text: str) -> Any:
    """Return the JSON value in a text; the node that asked for a schema judges what came."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _reason(content: bytes) -> str:
    try:
        error = json.loads(content)["error"]
        message = error["message"] if isinstance(error, dict) else error
        if isinstance(message, str) and message:
            return message[:MAX_REASON_CHARS]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # not OpenAI's error shape: its text will do
    return _cut(content) or "no reason given"


def _cut(content: bytes) -> str:
    return content[:MAX_REASON_CHARS].decode("utf-8", "replace")


def _rest_ms(retry_after: str | None, now_ms: float) -> float:
    """Return how long to rest by a Retry-After header: seconds or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return REST_MS
    try:
        rest_ms = float(retry_after) * 1000
    except ValueError:
        try:
            until = parsedate_to_datetime(retry_after)
        except ValueError:
            return REST_MS
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        rest_ms = (until - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000
    return min(max(rest_ms, 0.0), MAX_REST_MS) if rest_ms == rest_ms else REST_MS
