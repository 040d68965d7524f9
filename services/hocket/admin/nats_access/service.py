"""Opens together the parts of the REST service that let keys connect to NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from hocket.admin.nats_access.callout import Callout
from hocket.admin.nats_access.connection_limit import ConnectionLimit
from hocket.admin.nats_access.connections import Connections
from hocket.admin.nats_access.elections import Elections
from hocket.admin.nats_access.event_readers import EventReaders
from hocket.admin.nats_access.message_rates import MessageRates
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.nkeys import AccountKey
from hocket.kit.nats.bus import Bus
from hocket.kit.process.lifecycle import Service
from hocket.schemas.errors import InvalidInput


@asynccontextmanager
async def nats_access(service: Service, bus: Bus, book: KeyBook) -> AsyncIterator[None]:
    """Let the bearers of keys connect to NATS inside the block, if the settings provide the means.
    Raises InvalidInput."""
    settings = service.settings
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(EventReaders(bus, book).open())
        if settings.nats_access_url is not None and settings.nats_access_seed is not None:
            key = _key(settings.nats_access_seed.get_secret_value())
            access = await service.access_bus()
            limit = ConnectionLimit(book)
            rates = MessageRates(book, asyncio.get_running_loop().time)
            await stack.enter_async_context(Callout(access, key, book, limit, rates).open())
            await stack.enter_async_context(Connections(access, book, limit, rates).watched())
            await stack.enter_async_context(Elections(access).watched())
        yield


def _key(seed: str) -> AccountKey:
    try:
        return AccountKey(seed)
    except ValueError as error:
        raise InvalidInput(
            field="HOCKET_NATS_ACCESS_SEED",
            reason=str(error),
            cure="Use the seed that `hocket nats accounts` made.",
        ) from None
