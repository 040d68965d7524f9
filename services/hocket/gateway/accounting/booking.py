"""Booking: NATS knows of a call before its backend is asked, and of its cost before the caller gets
the reply.

A call is announced before it is made (`call_announcements.py`).

Usage records go to the stream `USAGE`, which is fsynced. Flushing a disk takes longer than
everything else here, so records are batched: while one message is in flight, further records are
collected for the next. With a journal (`usage_journal.py`) no reply waits for that: the record is
written where it outlives this process, the reply is sent, and the record is stored with those of
the next GATHER_MS. Without a journal, or if it is full or NATS is unreachable, `book` returns only
once the record is stored, and the record does not wait for others.

While NATS is unreachable, calls at backends continue and their usage is kept here, but no new call
is started, because it could not be announced.
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
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.errors import PublishRefused
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, sealed
from hocket.schemas.messages import CallOpened, CallRefused
from hocket.schemas.structs import usage
from hocket.schemas.structs.usage import RecordedUsage

REFUSED_PAUSE_MS = 1_000.0
MAX_RECORDS = 128
"""The most records in one message."""
MAX_BYTES = 256 * 1024
"""The most bytes in one message (a single larger record excepted); well below the server's limit."""
GATHER_MS = 5.0
"""How long a record that no reply waits for is held back to be sent with others."""

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Entry:
    """A record being stored: the future of whoever waits for it, its place in the journal, or both."""

    line: bytes
    stored: asyncio.Future[None] | None = None
    kept_at: int | None = None


class Booking:
    """Makes records durable: when `book` returns, `USAGE` has them, or will have them whichever
    process is killed.

    `seals` let the ledger verify that records come from a gateway; records in a journal are sealed
    when sent.
    """

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
        """The scheduled sending of the next message, if any."""
        self._urgent = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._announcements = CallAnnouncements(bus, seals)
        metrics.unbooked.set_function(lambda: len(self._waiting) + len(self._under_way))

    async def open(self, opened: CallOpened) -> Announcement:
        """Announce a call; on return the announcement has been sent, though not necessarily stored."""
        return await self._announcements.announce(opened)

    async def book(self, record: RecordedUsage) -> None:
        """Keep a usage record in the journal and return.

        If it has no room there, or NATS is away, also wait until the published record is acknowledged,
        through outages, as long as this process lives.
        """
        self._loop.call_soon(self._metrics.observe, record)  # the reply must not wait for this
        line = usage.write(record)
        kept_at: int | None = None
        if self._journal is not None and len(line) <= MAX_BYTES:
            kept_at = self._journal.keep(line)
        if kept_at is not None and self._bus.connected:
            self._enter(_Entry(line, kept_at=kept_at))
        else:
            await self._stored(line, kept_at)

    async def book_lines(self, lines: Sequence[bytes]) -> None:
        """Publish encoded records and wait until all of them are acknowledged."""
        await asyncio.gather(*map(self._stored, lines))

    def refuse(self, refused: CallRefused) -> None:
        """Report that a call ended before any backend was asked.

        Nothing was spent, so nobody waits for the report, and it is lost if NATS is unreachable.
        `hocket gateway explain` shows the reports that got through.
        """
        self._announcements.refuse(refused)

    async def close(self, timeout_ms: float) -> None:
        """Wait up to `timeout_ms` for records to be stored; what is then left in the journal is
        recovered by the next gateway."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            log.error("usage_unbooked", records=len(self._waiting) + len(self._under_way))
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def _stored(self, line: bytes, kept_at: int | None = None) -> None:
        stored: asyncio.Future[None] = self._loop.create_future()
        self._enter(_Entry(line, stored, kept_at))
        await stored

    def _enter(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._idle.clear()
        if not self._under_way:
            self._schedule(urgent=entry.stored is not None)

    def _schedule(self, *, urgent: bool) -> None:
        """Schedule the next message.

        If urgent, it is sent at the end of this turn of the loop, to include everything that ends
        in it; otherwise after GATHER_MS.
        """
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
        """Publish waiting records, as many as fit into one message."""
        self._sending = None
        self._under_way = taken = self._next()
        payload = b"\n".join([entry.line for entry in taken])
        try:
            headers = sealed(self._seals, subjects.USAGE_SUBJECT, payload)
            told = self._bus.publish_durable(subjects.USAGE_SUBJECT, payload, headers=headers)
        except MemoryError as error:
            log.warning("usage_waits", records=len(taken), reason=repr(error))
            self._send_again()
        except Exception as error:  # the connection is closed, or the record is too large
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
        """Send the records in flight once more after a pause."""
        self._waiting.extendleft(reversed(self._under_way))
        self._sending = self._loop.call_later(REFUSED_PAUSE_MS / 1000, self._send)

    def _failed(self, error: BaseException) -> None:
        """Fail those who wait; records in the journal stay there for the next gateway."""
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
