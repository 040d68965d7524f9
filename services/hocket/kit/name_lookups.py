"""Resolves host names, each in a thread of its own.

uvloop resolves two names at once in the whole process, and asyncio a few. A name whose servers do not
answer keeps its place for many seconds, so that a user who names such hosts would keep all others
waiting.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS = 512
"""Names that one resolver resolves at once; further ones are refused."""

Found: TypeAlias = list[tuple[Any, Any, int, str, tuple[Any, ...]]]


class NameResolver(AbstractResolver):
    """Resolves names for HTTP clients. The threads are daemons: no lookup delays the end of the
    process."""

    def __init__(self) -> None:
        self._looking = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raises OSError."""
        if self._looking >= MAX_LOOKUPS:
            raise OSError(f"{MAX_LOOKUPS} other names are being resolved")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Found] = loop.create_future()

        def settle(addresses: Found | None, error: Exception | None) -> None:
            self._looking -= 1
            if found.done():  # the caller has been cancelled
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(addresses or [])

        def look() -> None:
            addresses: Found | None = None
            failed: Exception | None = None
            try:
                addresses = socket.getaddrinfo(
                    host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
                )
            except Exception as error:  # passed on to the caller
                failed = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, addresses, failed)

        try:
            threading.Thread(target=look, name="name-lookup", daemon=True).start()
        except RuntimeError as error:  # the process may have no more threads
            raise OSError(str(error)) from error
        self._looking += 1
        return [_result(host, port, *one) for one in await found]

    async def close(self) -> None:
        """Do nothing: lookups that are still under way end by themselves."""


def _result(
    host: str, port: int, family: Any, _kind: Any, proto: int, _name: str, address: tuple[Any, ...]
) -> ResolveResult:
    numeric = address[0]
    if family == socket.AF_INET6 and address[3] and "%" not in numeric:
        numeric = f"{numeric}%{address[3]}"  # a link-local address is one only with its interface
    return ResolveResult(
        hostname=host,
        host=numeric,
        port=port,
        family=family,
        proto=proto,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
