"""The REST client of `hocket mcp`: concurrent requests over kept-alive connections. A connection and a
thread per request took longer than everything else that MCP adds to a call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from hocket.cli.remote.api import MAX_REPLY_BYTES, TIMEOUT_S, Api, encoded, with_query
from hocket.schemas.errors import HocketError

MAX_CONNECTIONS = 256
KEPT_S = 3.0
"""How long an idle connection is kept; less than the API keeps it."""


@asynccontextmanager
async def connections() -> AsyncIterator[ClientSession]:
    """Keep connections open until the block ends."""
    connector = TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEPT_S)
    async with ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=TIMEOUT_S),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
    ) as session:
        yield session


class KeptApi:
    """Sends the requests of an `Api` asynchronously, with its identity. Raises the same errors."""

    def __init__(self, session: ClientSession, api: Api) -> None:
        self._session = session
        self._api = api

    @property
    def identity(self) -> str:
        """The identity of the caller, as `Api.identity`."""
        return self._api.identity

    async def get(self, path: str, **query: Any) -> Any:
        """Return what is at `path`; query values that are None are left out."""
        return await self._ask("GET", with_query(path, query), None)

    async def post(self, path: str, body: Any) -> Any:
        """Send a JSON body and return the answer."""
        return await self._ask("POST", path, encoded(body))

    def unreachable(self, reason: str) -> HocketError:
        """Return the error for an API that does not answer."""
        return self._api.unreachable(reason)

    async def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = dict(self._api.headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            url = URL(self._api.url + path, encoded=True)
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                data = await _read(answer)
        except (OSError, ClientError, ValueError, TimeoutError) as error:
            raise self._api.unreachable(str(error) or type(error).__name__) from error
        return self._api.value_of(method, answer.status, data)


async def _read(answer: ClientResponse) -> bytes:
    """Return the body; raise ValueError if it is larger than any answer of the API."""
    data = bytearray()
    async for part in answer.content.iter_any():
        data += part
        if len(data) > MAX_REPLY_BYTES:
            raise ValueError(f"its answer has more than {MAX_REPLY_BYTES} bytes")
    return bytes(data)
