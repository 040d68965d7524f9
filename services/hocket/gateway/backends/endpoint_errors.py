"""What an HTTP endpoint's failures mean: the typed error of each status, without the endpoint's key."""

import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isnan
from typing import Any, TypeGuard

import aiohttp
import structlog

from hocket.gateway.backends.http_connections import ConnectingFailed, ConnectingTimedOut
from hocket.gateway.backends.http_reply import ReplyBroken
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendReplyTooLarge,
    BackendTimedOut,
    BackendUnreachable,
    BackendUnsuited,
    CallUnsendable,
    StreamBroken,
)
from hocket.gateway.core.protocols.json_size import SMALL_BYTES
from hocket.schemas.openai.failures import BACKEND_CODE, BACKEND_PARAM

log = structlog.get_logger()

MAX_REASON_CHARS = 500
MAX_NAME_CHARS = 128
"""The longest `code` or `param` of a server's error that is passed on."""
REDACTED = "[redacted]"
REST_MS = 1_000.0
"""How long a backend rests after a 429 that does not say how long."""
RETRY_AFTER, RETRY_AFTER_MS = "retry-after", "retry-after-ms"
"""The headers that say how long to rest; OpenAI and Azure send both, the second in milliseconds."""
MAX_REST_MS = 300_000.0
CONNECTING_MS = 1_000.0
"""A caller who leaves less time than this to connect learns nothing of the server, and tells nothing."""
_OVERLOADED = (503, 529)
_ADDRESSES = ("://", "Multiple exceptions")
"""What is in the texts of errors that name the address of a server."""
_COUNT = re.compile(r"\d{1,18}")
_LIMIT_OF_ONE = re.compile(r"\bLimit (\d{1,18}), (?:Used \d+, )?Requested (\d{1,18})\b")
"""How OpenAI says how many tokens an account may use in a minute, and how many a request would."""
STATUSES: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The statuses of errors that a reply with status 200 reports, by their `type`, if they give none."""
_NAMES: Mapping[str, str] = {"code": BACKEND_CODE, "param": BACKEND_PARAM}


class EndpointErrors:
    """Makes the errors of one endpoint, whose key `secret` they never contain."""

    def __init__(self, component: str, secret: str, now_ms: Callable[[], float]) -> None:
        self._component = component
        self._secret = secret
        self._now_ms = now_ms

    def redacted(self, text: str) -> str:
        """Return a text of the server with the key removed."""
        return text.replace(self._secret, REDACTED) if self._secret else text

    def malformed(self, reason: str, **fields: Any) -> BackendReplyMalformed:
        """Return the error for a malformed reply."""
        told = self.redacted(reason)
        return BackendReplyMalformed(component=self._component, reason=told, **fields)

    def too_large(self, reason: str, read_bytes: int | None = None) -> BackendReplyTooLarge:
        """Return the error for a reply that is larger than is read, of which so many bytes arrived."""
        return BackendReplyTooLarge(component=self._component, reason=reason, read_bytes=read_bytes)

    def reported(self, said: Any, *, in_stream: bool = False) -> BackendError:
        """Return the error that a reply with status 200, or an event of a stream, reports.

        Routers do so if a provider fails once they have answered; its own status is the `code`.
        """
        fields = said if isinstance(said, dict) else {}
        reason = self._cut(str(fields.get("message") or said))
        code = _status_of(fields)
        if code is None and in_stream:
            return StreamBroken(component=self._component, reason=reason)
        if code is None:
            return BackendBroken(component=self._component, status=200, reason=reason)
        return self._of_status(code, reason, {}, said)

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> BackendError:
        """Return the error for a reply with a status other than 200."""
        error = _error_in(content)
        reason = self._cut(_reason(error, content, MAX_REASON_CHARS + len(self._secret)))
        return self._of_status(status, reason, headers, error)

    def unanswered(self, error: Exception, timeout_ms: float) -> BackendError:
        """Return the error for a request that got no reply, or one that broke off."""
        if isinstance(error, aiohttp.ConnectionTimeoutError | ConnectingTimedOut):
            if timeout_ms < CONNECTING_MS:
                return BackendTimedOut(
                    component=self._component, timeout_ms=round(timeout_ms), unconnected=True
                )
            return BackendUnreachable(
                component=self._component, reason="the connection timed out", unconnected=True
            )
        if isinstance(error, TimeoutError):
            return BackendTimedOut(component=self._component, timeout_ms=round(timeout_ms))
        reason = self.told(_without_address(error), str(error))
        unconnected = isinstance(error, aiohttp.ClientConnectorError | ConnectingFailed)
        return BackendUnreachable(
            component=self._component,
            reason=reason,
            unconnected=unconnected,
            read_bytes=error.read_bytes if isinstance(error, ReplyBroken) else None,
        )

    def unsendable(self, error: ValueError) -> CallUnsendable:
        """Return the error for a request that cannot be sent because a header or the URL is invalid."""
        return CallUnsendable(component=self._component, reason=self._cut(str(error)))

    def told(self, reason: str, full: str) -> str:
        """Return why there was no answer; the log gets the full reason, with the address of the
        server."""
        reason, full = self._cut(reason), self._cut(full)
        if full and full != reason:
            log.info("backend_unreachable", backend=self._component, reason=full)
        return reason

    def _cut(self, reason: str) -> str:
        """Return a reason with the key removed, even if it is cut off within the key."""
        return self.redacted(reason)[:MAX_REASON_CHARS]

    def _named(self, error: Any) -> dict[str, str]:
        """Return the `code` and the `param` of an error in OpenAI's format, as far as they are names."""
        if not isinstance(error, dict):
            return {}
        found = {said: error.get(name) for name, said in _NAMES.items()}
        return {said: self.redacted(name) for said, name in found.items() if _is_name(name)}

    def _retry_at_ms(self, headers: Mapping[str, str]) -> float:
        now_ms = self._now_ms()
        return now_ms + _rest_ms(headers, now_ms)

    def _of_status(
        self, status: int, reason: str, headers: Mapping[str, str], error: Any
    ) -> BackendError:
        fields: dict[str, Any] = {
            "component": self._component,
            "status": status,
            "reason": reason,
            **self._named(error),
        }
        if status == 429 and _is_too_large(error, headers):
            return BackendUnsuited(**fields)
        if status == 429:
            return BackendRateLimited(**fields, retry_at_ms=self._retry_at_ms(headers))
        if status in _OVERLOADED and _says_when(headers):
            return BackendBroken(**fields, retry_at_ms=self._retry_at_ms(headers))
        if status in (401, 402, 403) and not _flags_input(error):
            return BackendDenied(**fields)
        if status >= 500 or status == 408:
            return BackendBroken(**fields)
        if status < 400 or status in (404, 405):
            return BackendMisconfigured(**fields)
        return BackendRefused(**fields)


def cut_text(content: bytes, most_chars: int = MAX_REASON_CHARS) -> str:
    """Return the beginning of a reply as text."""
    return content[:most_chars].decode("utf-8", "replace")


def _is_name(told: Any) -> TypeGuard[str]:
    """Return whether a `code` or `param` is a name; some servers tell their status there, as text."""
    is_short = isinstance(told, str) and 0 < len(told) <= MAX_NAME_CHARS
    return is_short and told.isprintable() and not told.isdigit()


def _error_in(content: bytes) -> Any:
    """Return the `error` of a failure in OpenAI's format; None if it is in another."""
    try:
        return json.loads(content if len(content) <= SMALL_BYTES else b"")["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _reason(error: Any, content: bytes, most_chars: int) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    if isinstance(message, str) and message:
        return message[:most_chars]
    return cut_text(content, most_chars) or "no reason given"


def _is_too_large(error: Any, headers: Mapping[str, str]) -> bool:
    """Return whether a 429 is about one request that is larger than the account's limit for a minute:
    however long the backend rests, it is refused again, and smaller ones are not."""
    if not isinstance(error, dict) or error.get("code") != "rate_limit_exceeded":
        return False
    told = _LIMIT_OF_ONE.search(str(error.get("message")))
    if told is None:
        return False
    limit = _COUNT.fullmatch(headers.get("x-ratelimit-limit-tokens", ""))
    return int(told[2]) > max(int(told[1]), int(limit[0]) if limit is not None else 0)


def _flags_input(error: Any) -> bool:
    """Return whether a denial is about the prompt, which moderation flagged, and not about the key:
    OpenRouter answers 403 to both."""
    metadata = error.get("metadata") if isinstance(error, dict) else None
    return isinstance(metadata, dict) and "flagged_input" in metadata


def _status_of(error: Mapping[str, Any]) -> int | None:
    """Return the status that a reported error stands for: its `code`, as a number or (of a LiteLLM
    proxy) as text, or that of its `type`; None if neither tells."""
    code = error.get("code")
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    if type(code) is int and 400 <= code <= 599:
        return code
    return STATUSES.get(str(error.get("type")))


def _without_address(error: Exception) -> str:
    """Return what happened to a connection, without the address of the server, which is nothing for
    callers."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate was not accepted ({type(error.certificate_error).__name__})"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, aiohttp.ClientResponseError):
        return f"its reply is not HTTP: {cause.message}"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS with it: {getattr(cause, 'reason', None) or type(cause).__name__}"
    if (number := _errno_of(cause)) > 0:
        return f"[Errno {number}] {os.strerror(number)}"
    told = str(cause) or type(cause).__name__
    return "no connection" if any(found in told for found in _ADDRESSES) else told


def _errno_of(error: Exception) -> int:
    """Return the number of an error of the system; 0 if it has none, negative for errors of names."""
    return (error.errno or 0) if isinstance(error, OSError) else 0


def _rest_ms(headers: Mapping[str, str], now_ms: float) -> float:
    """Return how long to rest according to a reply's headers: a number of milliseconds, else seconds or
    a date (RFC 9110, 10.2.3)."""
    rest_ms = _number(headers.get(RETRY_AFTER_MS))
    retry_after = headers.get(RETRY_AFTER, "")
    if rest_ms is None and (seconds := _number(retry_after)) is not None:
        rest_ms = seconds * 1000
    if rest_ms is None:
        try:
            until = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return REST_MS
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        rest_ms = (until - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000
    return min(max(rest_ms, 0.0), MAX_REST_MS)


def _says_when(headers: Mapping[str, str]) -> bool:
    """Return whether a reply says when to ask again."""
    return RETRY_AFTER in headers or RETRY_AFTER_MS in headers


def _number(text: str | None) -> float | None:
    """Return the number that a header says; None if it says none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if isnan(number) else number
