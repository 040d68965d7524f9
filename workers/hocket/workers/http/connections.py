"""Connections to services, which end at one that sends interim answers without an end.

aiohttp skips interim answers (`100 Continue`), however many there are. This overrides undocumented parts
of aiohttp; `test_http.py` would notice a change.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import ClientConnectionError, TCPConnector
from aiohttp.client_proto import ResponseHandler

MAX_INTERIM = 20
"""The most interim answers to one request, in addition to INTERIM_PER_S."""
INTERIM_PER_S = 2
"""How many more a service may send for each second since the request, as signs of life."""
_SWITCHES = 101
"""The one status of its class that ends an answer."""


class BoundedHandler(ResponseHandler):
    """Receives the answers of one connection, and closes it after too many interim ones. `clock` returns
    seconds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(loop)
        self._clock = clock
        self._interim = 0
        self._asked_at = clock()

    def set_response_params(self, **parameters: Any) -> None:
        """Prepare for the answer to another request, which is about to be sent."""
        self._interim = 0
        self._asked_at = self._clock()
        super().set_response_params(**parameters)

    def feed_data(self, data: Any, size: int = 0) -> None:
        status = data[0].code
        is_interim = 100 <= status < 200 and status != _SWITCHES
        self._interim = self._interim + 1 if is_interim else 0
        if not is_interim or self._interim <= self._allowed():
            super().feed_data(data, size)
        elif self.transport is not None:
            self.transport.abort()
            reason = (
                f"it sent more than {MAX_INTERIM} interim answers and"
                f" {INTERIM_PER_S} for each second since the request"
            )
            self.set_exception(ClientConnectionError(reason))

    def _allowed(self) -> float:
        return MAX_INTERIM + INTERIM_PER_S * (self._clock() - self._asked_at)


class BoundedConnector(TCPConnector):
    """Makes connections to a service."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]
