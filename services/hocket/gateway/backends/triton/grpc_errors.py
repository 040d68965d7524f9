"""What gRPC's failures mean: the typed error of each status, without the server's key and address."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc import StatusCode

from hocket.gateway.backends.endpoint_errors import (
    MAX_REASON_CHARS,
    MAX_REST_MS,
    REST_MS,
    EndpointErrors,
)
from hocket.gateway.backends.http_endpoint import MAX_REPLY_BYTES, TOO_LARGE
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
    BackendUnsuited,
    CallUnsuited,
    StreamBroken,
)
from hocket.gateway.core.config.table import BackendSpec

PUSHBACK = "grpc-retry-pushback-ms"
"""The metadata key by which a server says how long to wait (gRPC's retry design, A6)."""
_UNCONNECTED = ("failed to connect", "errors resolving", "resolution failed")
"""What is in gRPC's messages, in lower case, when no connection was established."""
_ADDRESSES = r"ipv[46]:|unix:|dns:|://"
"""What is in gRPC's messages that name the address of a server, in which its name may be, too."""
_TOO_LARGE = re.compile(r"\b(?:(CLIENT|SERVER): )?(Sent|Received) message larger than max\b")
"""How gRPC says which side found a message too large, and whether that side was to send it. Old servers
do not say that it was they."""
_OWN_REQUEST = ("CLIENT", "Sent")
_REQUEST = (_OWN_REQUEST, ("SERVER", "Received"))
_MISCONFIGURED = (StatusCode.NOT_FOUND, StatusCode.UNIMPLEMENTED)
_DENIED = (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED)
_REFUSED = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.OUT_OF_RANGE,
    StatusCode.FAILED_PRECONDITION,
)


class GrpcErrors:
    """Makes the errors of one server that is asked over gRPC."""

    def __init__(self, spec: BackendSpec, secret: str, now_ms: Callable[[], float]) -> None:
        host = re.escape(urlsplit(spec.base_url).hostname or spec.base_url.partition("://")[2])
        self._address = re.compile(rf"{_ADDRESSES}|(?<![\w.-]){host}(?![\w-])", re.IGNORECASE)
        self._component = spec.name
        self._errors = EndpointErrors(spec.name, secret, now_ms)
        self._now_ms = now_ms

    def of_stream(self, message: str) -> StreamBroken:
        """Return the error that a server tells within a stream."""
        reason = self._errors.redacted(message)[:MAX_REASON_CHARS]
        return StreamBroken(component=self._component, reason=reason)

    def unreadable(self) -> BackendReplyMalformed:
        """Return the error for outputs in another form than was asked for."""
        reason = "its outputs did not arrive as raw bytes"
        return BackendReplyMalformed(component=self._component, reason=reason)

    def check_size(self, request_bytes: int) -> None:
        """Raise the error for a request that gRPC would not send."""
        if request_bytes > MAX_REPLY_BYTES:
            raise self._too_large(*_OWN_REQUEST)

    @asynccontextmanager
    async def converted(self, timeout_ms: float) -> AsyncIterator[None]:
        """Convert gRPC's exceptions to BackendErrors."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._failure(error, timeout_ms) from error

    def _failure(self, error: grpc.aio.AioRpcError, timeout_ms: float) -> BackendError:
        code = error.code()
        component = self._component
        details = error.details() or "no reason given"
        reason = self._errors.redacted(details)[:MAX_REASON_CHARS]
        fields: dict[str, Any] = {"component": component, "status": code.name, "reason": reason}
        if code is StatusCode.UNAVAILABLE:
            return self._unreachable(details)
        if code is StatusCode.DEADLINE_EXCEEDED:
            return BackendTimedOut(component=component, timeout_ms=round(timeout_ms))
        if code is StatusCode.RESOURCE_EXHAUSTED:
            if (found := _TOO_LARGE.search(details)) is not None:
                return self._too_large(found[1] or "SERVER", found[2])
            return BackendRateLimited(**fields, retry_at_ms=self._now_ms() + _rest_ms(error))
        if code in _DENIED:
            return BackendDenied(**fields)
        if code in _MISCONFIGURED:
            return BackendMisconfigured(**fields)
        if code in _REFUSED:
            return BackendRefused(**fields)
        return BackendBroken(**fields)

    def _unreachable(self, details: str) -> BackendUnreachable:
        """Return the error for a server that gave no answer, without its address, which is nothing for
        callers."""
        unconnected = any(words in details.lower() for words in _UNCONNECTED)
        is_private = unconnected or self._address.search(details) is not None
        reason = "no connection" if is_private else details
        return BackendUnreachable(
            component=self._component,
            reason=self._errors.told(reason, details),
            unconnected=unconnected,
        )

    def _too_large(self, side: str, was_to: str) -> BackendError:
        """Return the error for a message that gRPC found too large: one request, or its answer."""
        if (side, was_to) not in _REQUEST:
            return self._errors.too_large(TOO_LARGE, MAX_REPLY_BYTES)
        unsent = side == "CLIENT"
        most = f"{MAX_REPLY_BYTES} bytes" if unsent else "its server takes"
        reason = f"the request has more than {most}: send less at once"
        if unsent:
            return CallUnsuited(component=self._component, reason=reason)
        return BackendUnsuited(component=self._component, status="request", reason=reason)


def _rest_ms(error: grpc.aio.AioRpcError) -> float:
    for name, value in error.trailing_metadata() or ():
        if name == PUSHBACK and str(value).isascii() and str(value).isdigit():
            return min(float(value), MAX_REST_MS)
    return REST_MS
