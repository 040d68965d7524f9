"""Sends one message to one webhook: to a public address, without redirects, with limits on time and
size.

Names are resolved for each connection, which goes to exactly the address that was checked. Hosts listed
in the setting HOCKET_WEBHOOK_PRIVATE_HOSTS may have private addresses, and need no TLS.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from hocket.admin.webhooks.tries import Outcome
from hocket.kit.name_lookups import NameResolver
from hocket.kit.public_addresses import PublicResolver, is_address, is_public
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

TIMEOUT_S = 15.0
"""The limit for a whole try."""
CONNECT_TIMEOUT_S = 5.0
READ_S = 2.0
"""The limit for reading the answer's body."""
MAX_ANSWER_BYTES = 16_384
"""The part of an answer's body that is read; longer answers are cut off."""
MAX_LINE_BYTES = 8_192
"""The maximum size of one header of an answer."""
MAX_CONNECTIONS = 256
DNS_CACHE_S = 10
MAX_ERROR_CHARS = 300
USER_AGENT = "Hocket-Webhooks/1"


class AddressIsPrivate(Exception):
    """The host of a webhook has an address that is not public."""


class WebhookSender:
    """Sends messages; `private_hosts` may have private addresses."""

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        self._private_hosts = frozenset(private_hosts)
        self._public = _session(PublicResolver(AddressIsPrivate))
        self._private = _session(NameResolver())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._public.close()
        await self._private.close()

    async def send(self, url: str, headers: Mapping[str, str], body: str) -> Outcome:
        """Send a message and return the outcome; raises only cancellation."""
        try:
            check_target(url, self._private_hosts)
        except InvalidInput as error:
            return Outcome(error=shown_text(str(error), MAX_ERROR_CHARS))
        session = self._private if _host(url) in self._private_hosts else self._public
        try:
            async with session.post(
                URL(url, encoded=True),
                data=body.encode(),
                headers={**headers, "user-agent": USER_AGENT, "accept-encoding": "identity"},
                allow_redirects=False,
            ) as response:
                with suppress(TimeoutError, ClientError):
                    await _read(response)  # the status counts, whatever happens to the body
                return _outcome(response)
        except AddressIsPrivate:
            return Outcome(error="its host is at a private address")
        except ConnectionTimeoutError:
            return Outcome(error=f"it accepted no connection within {CONNECT_TIMEOUT_S:g} s")
        except TimeoutError:
            return Outcome(error=f"it did not answer within {TIMEOUT_S:g} s")
        except (ClientError, OSError, ValueError) as error:
            reason = shown_text(str(error) or type(error).__name__, MAX_ERROR_CHARS)
            return Outcome(error=f"it cannot be reached: {reason}")


def check_target(url: str, private_hosts: Collection[str]) -> None:
    """Raise InvalidInput for a URL to which messages cannot be sent, as far as the URL alone tells."""
    host = _host(url)
    if host in private_hosts:
        return
    if urlsplit(url).scheme != "https":
        raise InvalidInput(
            field="url",
            reason="it has no TLS",
            cure="Write https://..., or add the host to HOCKET_WEBHOOK_PRIVATE_HOSTS.",
        )
    if host == "localhost" or (is_address(host) and not is_public(host)):
        raise InvalidInput(
            field="url",
            reason=f"`{shown_text(host, 100)}` is a private address, or not written as one",
            cure="Use a public one, or add the host to HOCKET_WEBHOOK_PRIVATE_HOSTS.",
        )


def _host(url: str) -> str:
    """Return the host of a URL, without the dot that a whole name may end with."""
    return (urlsplit(url).hostname or "").lower().rstrip(".")


def _session(resolver: PublicResolver | NameResolver) -> ClientSession:
    return ClientSession(
        connector=TCPConnector(limit=MAX_CONNECTIONS, ttl_dns_cache=DNS_CACHE_S, resolver=resolver),
        timeout=ClientTimeout(total=TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )


async def _read(response: ClientResponse) -> None:
    """Read the answer, so that the connection can be reused; an answer that is too long is cut off."""
    size = 0
    async with asyncio.timeout(READ_S):
        async for part in response.content.iter_any():
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                response.close()
                return


def _outcome(response: ClientResponse) -> Outcome:
    status = response.status
    if 200 <= status < 300:
        return Outcome(status)
    if 300 <= status < 400:
        return Outcome(status, f"it answered {status}, a redirect, which is not followed")
    after = response.headers.get("retry-after", "")
    asked_s = float(after) if after.isascii() and after.isdecimal() and len(after) < 10 else 0.0
    return Outcome(status, f"it answered {status}", asked_s)
