"""The components that let bearers of keys connect to NATS, in the test's process, and such bearers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from hocket.admin.nats_access.callout import Callout
from hocket.admin.nats_access.connection_limit import MAX_TENANT_CONNECTIONS, ConnectionLimit
from hocket.admin.nats_access.connections import Connections
from hocket.admin.nats_access.event_readers import EventReaders
from hocket.admin.nats_access.message_rates import MessageRates
from hocket.coordinator.guests.posts import GuestPosts
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.nkeys import AccountKey
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import StepConsumersDoor
from hocket.schemas.access.nats_table import ACCESS_USER, inbox_of_key


@asynccontextmanager
async def guests_welcome(
    servers: EmbeddedServers,
    book: KeyBook,
    most: int = MAX_TENANT_CONNECTIONS,
    *,
    hands_on: bool = True,
    per_s: float = 1e9,
    burst: float = 1e9,
) -> AsyncIterator[Connections]:
    """Let keys connect inside the block.

    A tenant may have `most` connections at a time, and its messages are limited by `MessageRates`
    (`per_s`, `burst`). Requests are served by the same components as in an installation; with
    `hands_on` what guests post is forwarded."""
    access = await Bus.connect(servers.nats.url_of(ACCESS_USER), name="access")
    coordinator = await Bus.connect(servers.nats.url_of("coordinator"), name="coordinator")
    admin = await Bus.connect(servers.nats.url_of("admin"), name="admin")
    limit = ConnectionLimit(book, most)
    clock_s = asyncio.get_running_loop().time
    rates = MessageRates(book, clock_s, per_s=per_s, burst=burst)
    connections = Connections(access, book, limit, rates)
    try:
        async with (
            Callout(access, AccountKey(servers.nats.access_seed), book, limit, rates).open(),
            EventReaders(admin, book).open(),
            StepConsumersDoor(coordinator).open(),
            GuestPosts(coordinator, partitions=1).open() if hands_on else nullcontext(),
            connections.watched(),
        ):
            yield connections
    finally:
        for bus in (access, coordinator, admin):
            await bus.close()


def url_with(url: str, key: str) -> str:
    """Return a server's URL with a key in place of its user."""
    return f"nats://{key}@{url.rpartition('@')[2]}"


@dataclass
class Guest:
    """A generic NATS client that presents a key, and the messages it received."""

    client: Client
    key_id: str
    came: list[Msg] = field(default_factory=list)
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def inbox(self) -> str:
        return inbox_of_key(self.key_id)

    async def hear(self, message: Msg) -> None:
        self.came.append(message)


MAX_RESETS = 5


@asynccontextmanager
async def guest(url: str, key: str) -> AsyncIterator[Guest]:
    """Connect with a key; raises the client's error if it is refused. Tries again if the server gave up
    waiting for it or for the callout, as happens on a busy machine."""
    found = Guest(nats.NATS(), key.split("_")[1])

    async def lost() -> None:
        found.lost.set()

    async def note(_error: Exception) -> None:
        pass  # the server's objections to single operations

    async def connect() -> None:
        await found.client.connect(
            url_with(url, key),
            inbox_prefix=found.inbox.encode(),
            allow_reconnect=False,
            disconnected_cb=lost,
            error_cb=note,
            connect_timeout=10,
        )

    try:
        for _ in range(MAX_RESETS):
            try:
                await connect()
                break
            except ConnectionResetError:
                await found.client.close()
                found.client = nats.NATS()
        else:
            await connect()
        yield found
    finally:
        with suppress(OSError):
            await found.client.close()
