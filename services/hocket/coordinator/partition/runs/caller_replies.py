"""Sends the end of a run to the inbox that its caller named.

On NATS, the holder of a key hears of its runs below `_INBOX.key.<id of the key>`. A key that may submit
tasks, but not see content, is told how a run ended without its output, as over REST; otherwise it could
have the output of any run whose idempotency key it knows.
"""

import asyncio

from hocket.coordinator.core.run.state.messages import end_message
from hocket.coordinator.core.run.state.run import Run
from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.schemas.access.nats_table import INBOX_OF_KEYS
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import PayloadTooLarge

MAX_ASKING = 256
"""Ends that wait until a new key is known here; further ones are sent without output."""


class CallerReplies:
    """Sends ends to inboxes. Without a `book`, no inbox is known to be that of a key."""

    def __init__(self, bus: Bus, book: KeyBook | None) -> None:
        self._bus = bus
        self._book = book
        self._asking: set[asyncio.Task[None]] = set()

    def send(self, inbox: str, run: Run, end: bytes) -> None:
        """Send `end`, the end of a run, to an inbox, without the output if it is that of a key which may
        not see it."""
        if self._book is None or not inbox.startswith(INBOX_OF_KEYS):
            self._bus.publish_nowait(inbox, end)
            return
        key_id = inbox.removeprefix(INBOX_OF_KEYS).partition(".")[0]
        if self._book.of(key_id) is None and len(self._asking) < MAX_ASKING:
            asking = asyncio.create_task(self._sent_later(self._book, key_id, inbox, run, end))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        else:
            self._send(self._book, key_id, inbox, run, end)

    async def _sent_later(
        self, book: KeyBook, key_id: str, inbox: str, run: Run, end: bytes
    ) -> None:
        """Send an end once the keys have been read again: the key may be new."""
        await book.looked()
        try:
            self._send(book, key_id, inbox, run, end)
        except PayloadTooLarge:
            self._bus.publish_nowait(inbox, end_message(run, too_large=True))

    def _send(self, book: KeyBook, key_id: str, inbox: str, run: Run, end: bytes) -> None:
        bearer = book.of(key_id)
        sees = (
            bearer is not None
            and bearer.tenant in (None, run.tenant)
            and bearer.may(Permission.CONTENT_READ)
        )
        self._bus.publish_nowait(inbox, end if sees else end_message(run, with_output=False))
