"""What the HTTP status of an answer means for a call, when to call again, and which answers the SDK
cannot read."""

from typing import Any

from aiohttp import ClientResponse
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from hocket.schemas.errors import HocketError
from hocket.workers.http.media_types import media_type
from hocket.workers.http.remote_calls import retry_at_ms
from hocket.workers.mcp.errors import (
    McpAnswerInvalid,
    McpFailed,
    McpNotAuthorized,
    McpRateLimited,
    McpRefused,
)

MAX_ERROR_BYTES = 100_000
"""The largest body of a failed request that is read as an error of the protocol."""
_UNAUTHORIZED = (401, 403, 407)
_UNREAD = ("Failed to parse JSON response", "Failed to parse SSE message")
_UNUSABLE = ("server answered a request with 202 Accepted", "Unexpected content type")


def fault_of(response: ClientResponse, component: str) -> HocketError | None:
    """Return the error for a status that is not an answer; JSON-RPC answers may have any status."""
    status = response.status
    if status == 429:
        return McpRateLimited(**_fields(response, component))
    if status in _UNAUTHORIZED:
        return McpNotAuthorized(status=status, component=component)
    if 300 <= status < 400:
        reason = "it answered with a redirect, which is not followed. Configure the final URL."
        return McpRefused(reason=reason, component=component)
    is_plain = response.headers.get("content-encoding", "identity").lower() == "identity"
    if status >= 500 and not (is_plain and media_type(response)[0] == "application/json"):
        return failure_of(response, component)
    if not is_plain:
        reason = "it is compressed, which was not asked for"
        return McpAnswerInvalid(reason=reason, component=component)
    return None


def failure_of(response: ClientResponse, component: str) -> McpFailed:
    """Return the error for a status of 500 and above."""
    return McpFailed(**_fields(response, component))


def unread_reason(code: int, message: str) -> str:
    """Return why an answer is no message of the protocol, if the SDK says so, or an empty text. Servers
    send such errors about what they were sent, and in other words."""
    if code == PARSE_ERROR and message.startswith(_UNREAD):
        return "it is not a message of JSON-RPC"
    if code == INVALID_REQUEST and message.startswith(_UNUSABLE):
        return message
    return ""


def is_protocol_error(body: bytes) -> bool:
    """Return whether the SDK reads a body as an error of the protocol."""
    if len(body) > MAX_ERROR_BYTES:
        return False
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return False
    return isinstance(message, JSONRPCError)


def _fields(response: ClientResponse, component: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"status": response.status, "component": component}
    at_ms = retry_at_ms(response.headers.get("retry-after", ""))
    return fields | ({} if at_ms is None else {"retry_at_ms": at_ms})
