"""What the handlers of a run's steps have done so far, from their journals."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice

import msgspec
from pydantic import ValidationError

from hocket.admin.context import Context
from hocket.kit.nats.consumers.stored_messages import StoredMessage, stored_messages
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.rest import JournalStep, RunJournal
from hocket.schemas.structs.fields import NOT_READ
from hocket.schemas.structs.journals import read_kept

MAX_JOURNAL_MESSAGES = 4_096
"""The maximum number of journal messages read for one run; below, their total size."""
MAX_JOURNALS_BYTES = 32 * 1_048_576


MAX_SHOWN_ENTRIES = 5_000
"""Entries in one answer, which is built and rendered as a whole."""


async def journal_of(context: Context, tenant: str, run_id: str) -> RunJournal:
    """Return the journals of a tenant's run, if they are still stored."""
    async with context.long_reads.place(tenant):
        found, all_of_them = await stored_messages(
            context.bus,
            subjects.JOURNALS,
            subjects.journals_of(run_id),
            max_messages=MAX_JOURNAL_MESSAGES,
            max_bytes=MAX_JOURNALS_BYTES,
        )
        entries = await asyncio.to_thread(_first_entries, found)
    return RunJournal(
        run_id=run_id,
        entries=entries[:MAX_SHOWN_ENTRIES],
        truncated=not all_of_them or len(entries) > MAX_SHOWN_ENTRIES,
    )


def _first_entries(found: list[StoredMessage]) -> tuple[JournalStep, ...]:
    """Return the entries to show, and one more if there are more."""
    return tuple(islice(_entries(found), MAX_SHOWN_ENTRIES + 1))


def _entries(found: list[StoredMessage]) -> Iterator[JournalStep]:
    """Yield the journal entries in order. Values stored by handlers are not decoded: they may be
    large."""
    for message in found:
        try:
            written = read_kept(message.body)
        except NOT_READ:
            continue
        for entry in written.entries:
            yield JournalStep(
                step=written.step,
                attempt=written.attempt,
                worker=written.worker,
                kind=entry.kind,
                name=entry.name,
                branch=entry.scope,
                ordinal=entry.ordinal,
                started_at=_moment(entry.started_at_ms),
                finished_at=_moment(entry.finished_at_ms),
                duration_ms=round(entry.finished_at_ms - entry.started_at_ms, 3),
                cost_usd=Decimal(entry.cost_usd),
                error=_error(entry.error),
            )


def _error(raw: msgspec.Raw) -> ErrorInfo | None:
    try:
        return None if bytes(raw) == b"null" else ErrorInfo.model_validate_json(bytes(raw))
    except ValidationError:
        return None


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
