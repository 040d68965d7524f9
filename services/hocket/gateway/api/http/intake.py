"""Reads request bodies, each within a time limit and all together within a memory limit.

A body counts from its first byte until its call has ended, even if the caller has gone before. Once
it is complete, its estimated size as parsed values counts, if that is larger. No tenant may hold so
much that others have no room.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from hocket.gateway.core.protocols.json_size import few_values, read_bytes
from hocket.kit.process import clock
from hocket.schemas.errors import ErrorClass, HocketError

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_BODIES_BYTES = 128 * 1024 * 1024
"""The most bytes of bodies held for all calls in flight; in memory,
a body takes up to three times its size."""
TENANT_FACTOR = 3
"""A tenant may hold at most this many times the room that is then still free."""
BODY_S = 60.0
"""How long a body may take to arrive."""
BUSY_RETRY_MS = 1_000.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyTooLarge(HocketError):
    """The body has more than {limit_bytes} bytes. Send less at once."""

    code = "body_too_large"
    error_class = ErrorClass.INVALID


class BodyTooSlow(HocketError):
    """The body did not arrive within {timeout_s} s. Send it faster, or less at once."""

    code = "body_too_slow"
    error_class = ErrorClass.INVALID


class BodyBroken(HocketError):
    """The body is not valid HTTP: {reason}."""

    code = "http_malformed"
    error_class = ErrorClass.INVALID


class BodiesFull(HocketError):
    """The gateway already holds {limit_bytes} bytes of bodies and has no room for this one now. Try
    again later, or start another gateway."""

    code = "bodies_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class TenantBodiesFull(BodiesFull):
    """The gateway already holds {held_bytes} bytes of bodies of this tenant, and keeps the rest of its
    room for others. Try again later, send less at once, or start another gateway."""


class Bodies:
    """Accounts for the memory of all bodies held."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._of_tenant: Counter[str] = Counter()

    async def read(self, request: web.BaseRequest, tenant: str = "") -> "Body":
        """Read and return the body of a request of a tenant; the caller must release it.

        Raises BodyTooLarge, BodyTooSlow, BodyBroken, BodiesFull and TenantBodiesFull.
        """
        body = Body(self, tenant)
        try:
            length = request.content_length
            if length is not None:
                body.take(length)
            if request.content.is_eof():  # it is complete: no need to wait
                await body.fill(request)
                return body
            async with asyncio.timeout(BODY_S):
                await _invite(request)
                await body.fill(request)
            return body
        except TimeoutError:
            body.release()
            raise BodyTooSlow(timeout_s=BODY_S) from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            body.release()
            raise BodyBroken(reason=type(error).__name__) from None
        except BaseException:
            body.release()
            raise

    def hold(self, tenant: str, count: int) -> None:
        """Count `count` more bytes of a tenant; raise BodiesFull or TenantBodiesFull."""
        free, held = MAX_BODIES_BYTES - self.held_bytes - count, self._of_tenant[tenant]
        fields: dict[str, Any] = {
            "component": "gateway",
            "retry_at_ms": clock.now_ms() + BUSY_RETRY_MS,
        }
        if free < 0:
            raise BodiesFull(limit_bytes=MAX_BODIES_BYTES, **fields)
        if held + count > TENANT_FACTOR * free:
            raise TenantBodiesFull(held_bytes=held, **fields)
        self.held_bytes += count
        self._of_tenant[tenant] += count

    def release(self, tenant: str, count: int) -> None:
        """Count `count` bytes of a tenant no longer."""
        self.held_bytes -= count
        self._of_tenant[tenant] -= count
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]


class Body:
    """One body, to be released when no longer needed."""

    def __init__(self, bodies: Bodies, tenant: str = "") -> None:
        self.content = b""
        self._bodies = bodies
        self._tenant = tenant
        self._bytes = 0

    def take(self, count: int) -> None:
        """Count `count` more bytes of the body."""
        if self._bytes + count > MAX_BODY_BYTES:
            raise BodyTooLarge(limit_bytes=MAX_BODY_BYTES)
        self._hold(count)

    def weigh(self, count: int) -> None:
        """Count the `parsed_bytes` of the body, too; raises BodiesFull."""
        if count > self._bytes:
            self._hold(count - self._bytes)

    async def fill(self, request: web.BaseRequest) -> None:
        """Read the body; bytes beyond its declared length are counted as they arrive."""
        received: list[bytes] = []
        came = 0
        while chunk := await request.content.readany():
            came += len(chunk)
            if came > self._bytes:
                self.take(came - self._bytes)
            received.append(chunk)
        self.content = b"".join(received)

    def release(self) -> None:
        """Stop counting the body; a second call does nothing."""
        self._bodies.release(self._tenant, self._bytes)
        self._bytes = 0

    def _hold(self, count: int) -> None:
        self._bodies.hold(self._tenant, count)
        self._bytes += count


def parsed_bytes(content: bytes) -> int:
    """Return roughly the memory that a body will take when parsed, not counting its strings: many small
    lists take thirty times their size. One with too many values will not be parsed, and takes none."""
    return read_bytes(content) if few_values(content) else 0


async def _invite(request: web.BaseRequest) -> None:
    """Ask for the body if the caller waits to be asked (RFC 9110, 10.1.1), as curl does with a large
    one."""
    expected = request.headers.get("Expect", "").strip().lower()
    if expected == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # the answer has not begun


Release = Callable[[], None]
