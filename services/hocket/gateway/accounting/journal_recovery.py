"""Journal recovery: books calls that killed gateways had answered but not yet booked.

Each gateway looks into the folder of usage journals when it starts and then every LOOK_S; a journal
that nobody holds belongs to a dead gateway. Its records are booked, and it is deleted once they are
stored. Records that had already been stored arrive a second time, but the ledger keeps one row per
call. Errors are never raised: a journal that cannot be opened or booked now is tried again later;
one that is damaged, or written by another version, is booked as far as it can be read and then kept
aside, never deleted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from hocket.gateway.accounting.booking import MAX_BYTES, Booking
from hocket.gateway.accounting.usage_journal import SUFFIX, LeftJournal
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.errors import HocketError

LOOK_S = 10.0
MAX_JOURNALS = 64
"""The most journals handled in one round."""

log = structlog.get_logger()
_reporting = Reporting(every_s=600.0)


class JournalRecovery:
    """Recovers the journals in a folder, inside `running`."""

    def __init__(self, folder: Path, books: Booking) -> None:
        self._folder = folder
        self._books = books

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._run(), name="recovery")
        try:
            yield
        finally:
            await stop_tasks([looking])

    async def look(self) -> int:
        """Book what dead gateways left, and return the number of records.

        A faulty journal does not keep the others from being booked.
        """
        found = taken = 0
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                left = LeftJournal.take(path)
                if left is None:
                    continue
                taken += 1
                try:
                    found += await self._book(path, left)
                finally:
                    left.let_go()
            except (OSError, HocketError) as error:
                if count := _reporting.due(path.name):
                    reason = repr(error)
                    log.error(
                        "journal_recovery_failed", journal=path.name, reason=reason, count=count
                    )
            if taken >= MAX_JOURNALS:
                break
        return found

    async def _book(self, path: Path, left: LeftJournal) -> int:
        records, whole = left.unsettled()
        sendable = [record for record in records if len(record) <= MAX_BYTES]
        if sendable:
            log.warning("usage_recovered", journal=path.name, records=len(sendable))
            await self._books.book_lines(sendable)
        if whole and len(sendable) == len(records):
            left.remove()
        else:
            log.error("usage_journal_unreadable", kept_as=left.keep_aside().name)
        return len(sendable)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:  # tried again in the next round
                log.error("journal_recovery_failed", folder=str(self._folder), reason=repr(error))
            await asyncio.sleep(LOOK_S)
