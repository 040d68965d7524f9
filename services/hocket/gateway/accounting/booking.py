"""Booking: NATS knows of a call before its backend is asked, and what it cost before anybody is told.

A call that is about to be made is announced (`call_announcements.py`).

What a call used goes to `USAGE`, which is fsynced. Flushing a disk takes longer than everything else
here, so records share it: while one message is on its way, the records that come are collected for the
next. With a journal (`usage_journal.py`) nobody waits for it: a record is kept where it outlives this
process, the answer leaves, and the record is stored with those of the next GATHER_MS. Without one, or
where the journal is full or NATS is away, `book` returns when the record is stored; then nobody waits
for others to come.

While NATS is away calls at backends go on, what they used is kept here, and no call is begun that could
not be announced.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from hocket.gateway.accounting.call_announcements import Announcement, CallAnnouncements
from hocket.gateway.accounting.usage_journal import UsageJournal
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.durable_publisher import PubAck
from hocket.kit.nats.errors import PublishRefused
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, sealed
from hocket.schemas.messages import CallOpened, CallRefused, UsageRecord

REFUSED_PAUSE_MS = 1_000.0
MAX_RECORDS = 128
"""Records in one message."""
MAX_BYTES = 256 * 1024
"""What one message holds, but for a single record that is larger; well below the server's limit."""
GATHER_MS = 5.0
"""How long a record that nobody waits for waits for others."""

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Entry:
    """A record on its way: who waits for it, or where the journal has it."""

    line: bytes
    stored: asyncio.Future[None] | None = None
    kept_at: int | None = None


class Booking:
    """Makes records durable: `USAGE` has them when `book` returns, or will have them whatever process
    is killed. `seals`: by which the ledger knows a gateway's records; what a journal has is sealed when
    it is sent."""

    def __init__(
        self,
        bus: Bus,
        metrics: GatewayMetrics,
        journal: UsageJournal | None = None,
        seals: Capabilities | None = None,
    ) -> None:
        self._bus = bus
        self._metrics = metrics
        self._journal = journal
        self._seals = seals
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Entry] = deque()
        self._under_way: list[_Entry] = []
        self._sending: asyncio.Handle | None = None
        """The next message, where one is to be sent."""
        self._urgent = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._announcements = CallAnnouncements(bus, seals)
        metrics.unbooked.set_function(lambda: len(self._waiting) + len(self._under_way))

    async def open(self, opened: CallOpened) -> Announcement:
        """Announce a call; when this returns the announcement is on its way."""
        return await self._announcements.announce(opened)

    async def book(self, record: UsageRecord) -> None:
        """Keep what a call used in the journal and return; else publish it and wait for its
        acknowledgement, through outages, for as long as we live."""
        self._loop.call_soon(self._metrics.observe, record)  # the answer goes first
        line = record.model_dump_json().encode()
        if self._journal is not None and self._bus.connected and len(line) <= MAX_BYTES:
            kept_at = self._journal.keep(line)
            if kept_at is not None:
                self._enter(_Entry(line, kept_at=kept_at))
                return
        await self._stored(line)

    async def book_lines(self, lines: Sequence[bytes]) -> None:
        """Publish encoded records and wait until all of them are acknowledged."""
        await asyncio.gather(*map(self._stored, lines))

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call. Nothing was spent, so nobody waits for it, and what is
        lost while NATS is away is lost; `hocket gateway explain` shows what came through."""
        self._announcements.refuse(refused)

    async def close(self, timeout_ms: float) -> None:
        """Give what is under way some time to be stored; what the journal still has then is left to the
        next gateway."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            log.error("usage_unbooked", records=len(self._waiting) + len(self._under_way))
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def _stored(self, line: bytes) -> None:
        stored: asyncio.Future[None] = self._loop.create_future()
        self._enter(_Entry(line, stored))
        await stored

    def _enter(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._idle.clear()
        if not self._under_way:
            self._schedule(urgent=entry.stored is not None)

    def _schedule(self, *, urgent: bool) -> None:
        """Send at the end of this turn of the loop, so that what ends in it comes along, or later,
        where nobody waits."""
        if self._sending is not None:
            if self._urgent or not urgent:
                return
            self._sending.cancel()
        self._urgent = urgent
        if urgent:
            self._sending = self._loop.call_soon(self._send)
        else:
            self._sending = self._loop.call_later(GATHER_MS / 1000, self._send)

    def _send(self) -> None:
        """Publish what waits, as much as fits into one message."""
        self._sending = None
        self._under_way = taken = self._next()
        payload = b"\n".join([entry.line for entry in taken])
        try:
            headers = sealed(self._seals, subjects.USAGE_SUBJECT, payload)
            told = self._bus.publish_durable(subjects.USAGE_SUBJECT, payload, headers=headers)
        except MemoryError as error:
            log.warning("usage_waits", records=len(taken), reason=repr(error))
            self._send_again()
        except Exception as error:  # the connection was closed, or the record is too large
            self._failed(error)
        else:
            told.add_done_callback(self._sent)

    def _next(self) -> list[_Entry]:
        taken = [self._waiting.popleft()]
        size = len(taken[0].line)
        while self._waiting and len(taken) < MAX_RECORDS:
            size += len(self._waiting[0].line) + 1
            if size > MAX_BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _sent(self, told: asyncio.Future[PubAck]) -> None:
        error = None if told.cancelled() else told.exception()
        if isinstance(error, PublishRefused):
            log.error("usage_refused", records=len(self._under_way), reason=str(error))
            self._send_again()
            return
        if error is not None:
            self._failed(error)
            return
        for entry in self._under_way:
            if entry.kept_at is not None and self._journal is not None:
                self._journal.settle(entry.kept_at)
            if entry.stored is not None and not entry.stored.done():
                entry.stored.set_result(None)
        self._go_on()

    def _send_again(self) -> None:
        """Send what is under way once more, a moment later."""
        self._waiting.extendleft(reversed(self._under_way))
        self._sending = self._loop.call_later(REFUSED_PAUSE_MS / 1000, self._send)

    def _failed(self, error: BaseException) -> None:
        """Tell who waits; what the journal has stays there for the next gateway."""
        left = sum(entry.kept_at is not None for entry in self._under_way)
        if left:
            log.error("usage_left_in_journal", records=left, reason=repr(error))
        for entry in self._under_way:
            if entry.stored is not None and not entry.stored.done():
                entry.stored.set_exception(error)
        self._go_on()

    def _go_on(self) -> None:
        self._under_way = []
        if self._waiting:
            self._schedule(urgent=any(entry.stored is not None for entry in self._waiting))
        else:
            self._idle.set()
