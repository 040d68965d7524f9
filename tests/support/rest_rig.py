"""The REST API on a real NATS and a real Postgres, in the test's process."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import aiohttp
import asyncpg
import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from hocket.admin.app import make_app
from hocket.admin.context import Context, utc_now
from hocket.admin.queries import database_now
from hocket.kit.access import key_store
from hocket.kit.access.audit_log import Actor
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.access.key_store import NewKey
from hocket.kit.access.secret_box import KEY_BYTES, SecretBox
from hocket.kit.identity.authorization_code import AuthorizationCode
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.configured import CliClient
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.database import connect_pool
from hocket.schemas.capabilities import Capabilities
from support.shared.clocks import database_clock
from support.shared.routes import share_routes

share_routes()

MAX_TASK_BYTES = 4_096
PARTITIONS = 4


@dataclass
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.body["error"])


@dataclass
class Rest:
    """The API under test, with separate connections for tests to look behind it."""

    bus: Bus
    pool: "asyncpg.Pool[asyncpg.Record]"
    session: aiohttp.ClientSession
    url: str
    registry: CollectorRegistry
    book: KeyBook
    app: FastAPI
    key: str
    """The key of an admin of all tenants, which every request of `session` sends."""

    async def make_key(self, role: str, tenant: str | None = "default", **options: Any) -> str:
        """Make a key and return its text."""
        wanted = NewKey(options.pop("name", role), role, tenant, **options)
        return await make_key(self.pool, wanted)

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        async with self.session.request(method, self.url + path, **options) as reply:
            text = await reply.text()
            body = json.loads(text) if "json" in reply.content_type and text else text
            return Answer(reply.status, body, dict(reply.headers))

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.ask("POST", path, json=body, **options)

    async def stored(self, stream: str) -> int:
        info = await self.bus.js.stream_info(stream)
        return info.state.messages

    async def message_ids(self, stream: str) -> set[str]:
        """Return the distinct ids of a stream's messages. A message that was published again may be
        stored twice, because TASKS remembers ids for only a tenth of a second (intake forever)."""
        state = (await self.bus.js.stream_info(stream)).state
        messages = [
            await self.bus.js.get_msg(stream, seq)
            for seq in range(max(1, state.first_seq), state.last_seq + 1)
        ]
        return {(message.headers or {})["Nats-Msg-Id"] for message in messages}


@asynccontextmanager
async def running_rest(
    nats_url: str,
    database_url: str,
    *,
    max_task_bytes: int = MAX_TASK_BYTES,
    root_path: str = "",
    tokens: TokenBearers | None = None,
    sign_in: AuthorizationCode | None = None,
    cli_client: CliClient | None = None,
    public_url: str | None = None,
    now: Callable[[], datetime] = utc_now,
    capabilities: Capabilities | None = None,
) -> AsyncIterator[Rest]:
    """Serve the API in this process until the block ends."""
    bus = await Bus.connect(nats_url, name="rest-test")
    await ensure_streams(bus)
    reserved = await connect_pool(database_url, size=2, name="rest-test keys")
    pool = await connect_pool(database_url, size=8, name="rest-test")
    stopping = asyncio.Event()
    context = Context(
        bus=bus,
        pool=pool,
        partitions=PARTITIONS,
        max_task_bytes=max_task_bytes,
        stopping=stopping,
        capabilities=capabilities,
        reserved=reserved,
        now=now,
        database_now=database_now if now is utc_now else database_clock(now),
        secrets=SecretBox([bytes(KEY_BYTES)]),
        webhook_private_hosts=frozenset({"127.0.0.1"}),
    )
    registry = CollectorRegistry()
    listener = socket.create_server(("127.0.0.1", 0))
    key = await make_key(pool, NewKey("test", "admin", None))
    book = KeyBook(DatabaseKeys(reserved))
    app = make_app(
        context,
        registry,
        book,
        root_path=root_path,
        tokens=tokens,
        sign_in=sign_in,
        cli_client=cli_client,
        public_url=public_url,
    )
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    try:
        async with (
            book.running(),
            context.live.running(bus, stopping),
            aiohttp.ClientSession(headers=bearer(key)) as session,
        ):
            yield Rest(bus, pool, session, f"http://127.0.0.1:{port}", registry, book, app, key)
    finally:
        stopping.set()
        server.should_exit = True
        await serving
        await pool.close()
        await reserved.close()
        await bus.close()


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"Authorization": f"Bearer {key}"}


async def make_key(pool: "asyncpg.Pool[asyncpg.Record]", wanted: NewKey) -> str:
    """Make a key and return its text."""
    async with pool.acquire() as connection:
        _, text = await key_store.create(connection, wanted, Actor("test", "127.0.0.1"))
    return text
