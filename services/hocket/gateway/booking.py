"""Booking: NATS knows of a call before its backend is asked, and what it cost before anybody is told.

A call that is about to be made is announced in the stream `CALLS`, at once and without waiting for a
disk: the announcement has left this process before the backend is asked, so a gateway that is killed
leaves its calls known. A NATS server that is killed may lose the announcements of the last moments: when
it is back, those of all calls under way are made again.

What a call used goes to `USAGE`, which is fsynced. Flushing a disk takes longer than everything else
here, so records share it: while one message is on its way, the records that come are collected for the
next. Nobody waits for others to come.

While NATS is away calls at backends go on, what they used is kept here, and no call is begun that could
not be announced.
"""

import asyncio
import weakref
from collections import deque

import structlog

from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.bus import Bus, PubAck, PublishRefused
from hocket.schemas import subjects
from hocket.schemas.messages import CallOpened, CallRefused, UsageRecord

REFUSED_PAUSE_MS = 1_000.0
MAX_RECORDS = 128
"""Records in one message."""
MAX_BYTES = 256 * 1024
"""What one message holds, but for a single record that is larger; well below the server's limit."""

log = structlog.get_logger()


class Announcement:
    """A call that was said to be made; `first` tells whether nobody had said so before."""

    def __init__(self, bus: Bus, opened: CallOpened) -> None:
        self._bus = bus
        self._msg_id = f"{opened.call_id}:opened"
        self._payload = opened.model_dump_json().encode()
        self._told = self._tell()

    def again(self) -> None:
        """Announce it once more, for the server may have lost it."""
        if self._told.done():
            self._bus.post(subjects.CALL_OPENED, self._payload, msg_id=self._msg_id)

    async def sent(self) -> None:
        """Wait while the announcement cannot leave this process."""
        if not self._bus.connected:
            await self._acknowledged()

    async def first(self) -> bool:
        """Wait until the announcement is stored; tell whether nobody made it before, within what the
        stream remembers (two minutes)."""
        return not (await self._acknowledged()).duplicate

    def _tell(self) -> asyncio.Future[PubAck]:
        return self._bus.post(subjects.CALL_OPENED, self._payload, msg_id=self._msg_id)

    async def _acknowledged(self) -> PubAck:
        while True:
            try:
                return await asyncio.shield(self._told)
            except PublishRefused as error:
                log.error("announcement_refused", msg_id=self._msg_id, reason=str(error))
                await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
                self._told = self._tell()


class Booking:
    """Makes records durable: `USAGE` has them when `book` returns."""

    def __init__(self, bus: Bus, metrics: GatewayMetrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._under_way: list[tuple[bytes, asyncio.Future[None]]] = []
        self._announced: weakref.WeakSet[Announcement] = weakref.WeakSet()
        """Those whose call still holds them, because it is not booked."""
        bus.on_reconnect.append(self._announce_again)
        metrics.unbooked.set_function(lambda: len(self._waiting) + len(self._under_way))

    async def open(self, opened: CallOpened) -> Announcement:
        """Announce a call; when this returns the announcement is on its way."""
        await self._bus.room()
        announcement = Announcement(self._bus, opened)
        self._announced.add(announcement)
        await announcement.sent()
        return announcement

    async def book(self, record: UsageRecord) -> None:
        """Publish what a call used and wait for its acknowledgement, through outages, for as long as we
        live."""
        self._metrics.observe(record)
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        self._waiting.append((record.model_dump_json().encode(), stored))
        if len(self._waiting) == 1 and not self._under_way:
            loop.call_soon(self._send)  # what else ends in this turn of the loop comes along
        await stored

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call. Nothing was spent, so nobody waits for it, and what is
        lost while NATS is away is lost; `hocket gateway explain` shows what came through."""
        if self._bus.connected:
            self._bus.tell(subjects.CALL_REFUSED, refused.model_dump_json().encode())

    def _announce_again(self) -> None:
        for announcement in list(self._announced):
            announcement.again()

    def _send(self) -> None:
        """Publish what waits, as much as fits into one message."""
        self._under_way = taken = self._next()
        payload = b"\n".join([line for line, _ in taken])
        try:
            told = self._bus.post(subjects.USAGE_SUBJECT, payload)
        except Exception as error:  # the connection was closed, or the record is too large
            self._failed(error)
        else:
            told.add_done_callback(self._sent)

    def _next(self) -> list[tuple[bytes, asyncio.Future[None]]]:
        taken = [self._waiting.popleft()]
        size = len(taken[0][0])
        while self._waiting and len(taken) < MAX_RECORDS:
            size += len(self._waiting[0][0]) + 1
            if size > MAX_BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _sent(self, told: asyncio.Future[PubAck]) -> None:
        error = None if told.cancelled() else told.exception()
        if isinstance(error, PublishRefused):
            log.error("usage_refused", records=len(self._under_way), reason=str(error))
            self._waiting.extendleft(reversed(self._under_way))
            asyncio.get_running_loop().call_later(REFUSED_PAUSE_MS / 1000, self._send)
            return
        if error is not None:
            self._failed(error)
            return
        for _, stored in self._under_way:
            if not stored.done():
                stored.set_result(None)
        self._go_on()

    def _failed(self, error: BaseException) -> None:
        for _, stored in self._under_way:
            if not stored.done():
                stored.set_exception(error)
        self._go_on()

    def _go_on(self) -> None:
        self._under_way = []
        if self._waiting:
            self._send()
