"""Where a request that came through a proxy was sent from, and whether by https.

A proxy on this machine, or one whose address FORWARDED_ALLOW_IPS names, says so in `X-Forwarded-For` and
`X-Forwarded-Proto`; what anybody else says is ignored. On this machine every program can say so, too:
what is no address would be kept as one, in the memory of rate limits and in the audit.
"""

import os
from ipaddress import ip_address
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

FORWARDED_FOR = b"x-forwarded-for"
TRUSTED = "FORWARDED_ALLOW_IPS"
"""uvicorn's own variable: addresses and networks, separated by commas; `*` is everybody."""
LOOPBACK = "127.0.0.1,::1"
MAX_CHARS = 64
"""The length of an address with its zone and port."""


class Forwarded:
    """ASGI middleware around all others: sets the client's address and the scheme of a request, if a
    trusted proxy names them."""

    def __init__(self, app: ASGIApp) -> None:
        trusted = os.environ.get(TRUSTED, LOOPBACK)
        inner = ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=trusted)
        self._app = cast(ASGIApp, inner)  # uvicorn spells the same types differently

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = [value for name, value in scope.get("headers", ()) if name == FORWARDED_FOR]
        if told and not _are_addresses(b",".join(told)):
            headers = [one for one in scope["headers"] if one[0] != FORWARDED_FOR]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _are_addresses(told: bytes) -> bool:
    """Tell whether a list names addresses and nothing else, each perhaps with a port."""
    return all(_is_address(part.strip()) for part in told.decode("latin-1").split(","))


def _is_address(text: str) -> bool:
    host = text.partition("]")[0].removeprefix("[")
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return len(text) <= MAX_CHARS
