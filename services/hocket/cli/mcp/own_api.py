"""The client of the REST API for callers of `hocket mcp` without a key of their own."""

import asyncio
from collections.abc import Callable

from hocket.cli.remote.api import Api
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import HocketError

FAILURE_MS = 3_000.0
"""How long calls get the failure of an earlier one: the identity provider is not asked for each."""


class OwnApi:
    """Makes the client anew for each call, because its token counts for an hour.

    To renew the token may take a minute: the provider may be slow, and another command may hold the
    contexts. So it is done in a thread, once for all calls that come meanwhile."""

    def __init__(self, make: Callable[[], Api]) -> None:
        self._make = make
        self._under_way: asyncio.Task[Api] | None = None
        self._failure: HocketError | None = None
        self._failed_until_ms = 0.0

    async def get(self) -> Api:
        """Return the client, or raise what making it raises."""
        if self._failure is not None and monotonic_ms() < self._failed_until_ms:
            raise self._failure.with_traceback(None)
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._made(), name="own-api")
        return await asyncio.shield(self._under_way)  # others wait for it, if this call is given up

    async def _made(self) -> Api:
        try:
            return await asyncio.to_thread(self._make)
        except HocketError as error:
            self._failure, self._failed_until_ms = error, monotonic_ms() + FAILURE_MS
            raise
        finally:
            self._under_way = None
