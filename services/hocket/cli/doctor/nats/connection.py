"""Connections of `hocket doctor` to NATS: to any server of a URL, or to a particular one."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from nats.aio.client import Client

from hocket.cli.doctor.certificates import peer_certificate
from hocket.kit.nats.connection.encrypted_client import EncryptedClient
from hocket.kit.nats.identity import identity_of
from hocket.kit.nats.server_tls import tls_of
from hocket.kit.nats.server_urls import server_urls

TIMEOUT_S = 5.0
NATS_PORT = 4222
MAX_GREETING_BYTES = 64 * 1024
NO_NATS = "it is not a NATS server"


async def connect(url: str, only: str | None = None) -> Client:
    """Connect to any server of a `NATS_URL`, or to the server `only`. Raises OSError, TimeoutError,
    nats.errors.Error or ValueError with the last error."""
    faults: list[Exception] = []

    async def note(error: Exception) -> None:
        faults.append(error)

    try:
        async with asyncio.timeout(TIMEOUT_S):
            client = EncryptedClient()
            await client.connect(
                [only] if only else server_urls(url),
                name="hocket-doctor",
                inbox_prefix=identity_of(url).inbox.encode(),
                tls=tls_of(url),
                connect_timeout=2,
                allow_reconnect=only is None,
                error_cb=note,
            )
            return client
    except TimeoutError:
        raise faults[-1] if faults else TimeoutError("it does not respond") from None


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server says about itself on every connection, and the certificate (DER) that it
    presents."""

    name: str
    server_id: str
    version: str
    cluster: str
    certificate: bytes | None


async def greeting(url: str, one: str) -> Greeting | None:
    """Return what one server of a `NATS_URL` says before authentication; None for WebSockets. Raises
    OSError (including ssl.SSLError), TimeoutError, or ValueError if it is not a NATS server."""
    place = urlsplit(one)
    if place.scheme.startswith("ws"):
        return None
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            place.hostname, place.port or NATS_PORT, limit=MAX_GREETING_BYTES
        )
        try:
            told = _info(await _first_line(reader))
            context = tls_of(url)
            if context is not None:
                await writer.start_tls(context, server_hostname=place.hostname)
            certificate = peer_certificate(writer.transport)
        finally:
            writer.close()
    return Greeting(
        name=str(told.get("server_name", "")),
        server_id=str(told.get("server_id", "")),
        version=str(told.get("version", "")),
        cluster=str(told.get("cluster", "")),
        certificate=certificate,
    )


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # it is longer than any greeting
        raise ValueError(NO_NATS) from None


def _info(line: bytes) -> dict[str, Any]:
    """Return what a server's first line says; raise ValueError if it is not a NATS server."""
    verb, _, body = line.partition(b" ")
    try:
        told = json.loads(body) if verb == b"INFO" else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ValueError(NO_NATS)
    return told


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the JetStream API, and between which moments (epoch s) it was given."""

    body: dict[str, Any]
    asked_s: float
    heard_s: float

    @property
    def error(self) -> str:
        """Why the server refused the request; empty if it did not."""
        return str(self.body.get("error", {}).get("description", ""))


async def ask(connection: Client, what: str, given: dict[str, Any] | None = None) -> Answer:
    """Send a request to the JetStream API. Raises nats.errors.Error and TimeoutError."""
    asked_s = time.time()
    reply = await connection.request(
        f"$JS.API.{what}", json.dumps(given or {}).encode(), timeout=TIMEOUT_S
    )
    return Answer(json.loads(reply.data), asked_s, time.time())
