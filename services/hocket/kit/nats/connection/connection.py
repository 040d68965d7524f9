"""Opens a connection to NATS, and logs its changes of state.

States: opening (within CONNECT_TIMEOUT_S), connected, or away, from which it recovers by itself. No
error of the server and no server that hangs ends the connection for good.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import structlog
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.connection.client import RECONNECT_WAIT_S, ReconnectingClient
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.identity import identity_of
from hocket.kit.nats.server_tls import certificate_files, load, tls_of
from hocket.kit.nats.server_urls import server_urls, without_passwords
from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import InvalidInput

PING_S = 10.0
MAX_PINGS = 2
"""Unanswered pings after which a server counts as away although its connection is open."""
CONNECT_TIMEOUT_S = 30.0
CHECK_TIMEOUT_S = 5.0
CHECKED_WITHIN_S = 30.0
"""How long a check that fails after a reconnect is repeated: nothing is posted meanwhile."""
CHECK_AGAIN_S = 0.2
PENDING_BYTES = 256 * 1024 * 1024
"""Bytes that may wait for the socket. Beyond this, `publish_nowait` drops its message; posts stay far
below it, because their callers wait for capacity."""

log = structlog.get_logger(__name__)


class Connection:
    """A client and the state of its connection. `url` may name several servers."""

    def __init__(self, url: str, *, name: str) -> None:
        self.client = ReconnectingClient()
        self.reports = Reporting(clock_s=asyncio.get_running_loop().time)
        self.losses = 0
        """How often the connection was lost after it was opened."""
        self.lost_at_ms = 0.0
        """When it was last lost (epoch ms), 0 if never."""
        self.on_loss: list[Callable[[], None]] = []
        """Functions that are called when the connection is lost."""
        self.checks: list[Callable[[], Awaitable[None]]] = []
        """Functions that are awaited after each reconnect, before those of `on_reconnect`."""
        self.on_reconnect: list[Callable[[], None]] = []
        """Functions that are called after each reconnect, in order."""
        self.identity = identity_of(url)
        """The identity with which it connects."""
        self._url = url
        self._tls: ssl.SSLContext | None = None
        self._name = name
        self._opened = False
        self._closing = False
        self._refused = False
        """Whether the server has reported an error: that it then closes the connection says nothing
        new."""
        self._error = "no answer"

    async def open(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Connect within `timeout_s`, or raise BusUnavailable, or InvalidInput for a URL without
        servers; it recovers from later losses by itself."""
        servers, self._tls = server_urls(self._url), tls_of(self._url)
        try:
            async with asyncio.timeout(timeout_s):
                await self.client.connect(
                    servers,
                    tls=self._tls,
                    name=self._name,
                    inbox_prefix=self.identity.inbox.encode(),
                    max_reconnect_attempts=-1,
                    allow_reconnect=True,
                    reconnect_time_wait=RECONNECT_WAIT_S,  # it takes fractions
                    connect_timeout=2,
                    ping_interval=PING_S,
                    max_outstanding_pings=MAX_PINGS,
                    pending_size=PENDING_BYTES,
                    reconnected_cb=self._reconnected,
                    disconnected_cb=self._disconnected,
                    error_cb=self._failed,
                    closed_cb=self._closed,
                )
        except (NatsError, TimeoutError, ValueError, OSError) as error:
            await self.client.close()
            reason = self._error if isinstance(error, TimeoutError) else str(error)
            raise BusUnavailable(reason=f"{without_passwords(self._url)}: {reason}") from error
        self._opened = True

    def expect_close(self) -> None:
        """Note that the connection is about to be closed, so that its end is not logged as a failure."""
        self._closing = True

    async def _reconnected(self) -> None:
        log.info("bus_reconnected", bus=self._name)
        for check in self.checks:
            await self._checked(check)
        for callback in self.on_reconnect:
            try:
                callback()
            except Exception:  # the other callbacks must be called too
                log.exception("bus_reconnect_callback_failed")

    async def _checked(self, check: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CHECKED_WITHIN_S
        while True:
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    await check()
                return
            except Exception as error:
                fault = repr(error)
            log.warning("bus_not_checked", bus=self._name, error=fault)
            if loop.time() >= until_s:  # what waits for it must go on
                return
            await asyncio.sleep(CHECK_AGAIN_S)

    async def _disconnected(self) -> None:
        for callback in self.on_loss:
            callback()
        if self._opened:
            self.losses += 1
            self.lost_at_ms = now_ms()
        self._read_certificates_again()
        if not self._closing:
            log.warning("bus_away", bus=self._name)

    def _read_certificates_again(self) -> None:
        if self._tls is None:
            return
        try:
            load(self._tls, certificate_files(self._url))
        except InvalidInput as error:  # perhaps half written; the old ones are used until then
            log.warning("bus_certificates_not_read", bus=self._name, error=str(error))

    async def _failed(self, error: Exception) -> None:
        if self._opened or not isinstance(error, OSError) or not self._refused:
            self._error = str(error) or type(error).__name__
        self._refused |= isinstance(error, NatsError)
        if isinstance(error, SlowConsumerError):  # messages are lost
            if self.reports.due("dropped"):
                log.error("bus_messages_dropped", bus=self._name, subject=error.subject)
        elif not self._opened and self.reports.due("unreachable"):  # opening may take long
            url = without_passwords(self._url)
            log.warning("bus_unreachable", bus=self._name, url=url, error=self._error)
        elif isinstance(error, NatsError | OSError | TimeoutError):
            log.debug("bus_error", bus=self._name, error=self._error)
        else:
            log.error("bus_error", bus=self._name, exc_info=error)

    async def _closed(self) -> None:
        if self._opened and not self._closing:
            log.error("bus_lost", bus=self._name, error=self._error)
