"""The journal of a step: what its handler has done, so that another attempt does not do it again.

It is a list of messages on one subject of the stream JOURNALS. Only coordinators write and read it
there, for whoever shows the capability of one of the step's attempts: a worker asks for what was done
(`JournalRead`), and hands in what it has done (`JournalWrite`). Pure.
"""

import hashlib
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from hocket.schemas.checks.bounded import Count, Int32, Moment, Money, Name, StepKey, StoredText
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Message

MAX_ENTRIES = 1_000
"""Of one step."""
MAX_ENTRY_BYTES = 256 * 1024
"""Of an entry's value; what is larger leaves for a blob."""
MAX_WRITE_BYTES = 640 * 1024
"""Of a JournalWrite; workers put no more entries into one than fit into half a MiB."""
MAX_PAGE_BYTES = 640 * 1024
"""Of the messages in a JournalPage."""
MAX_JOURNAL_BYTES = 8 * 1024 * 1024
"""Of one step's messages."""
MAX_MESSAGES = 2_048
"""Of one step's journal: its entries, and an opening for each attempt."""
MAX_ENTRY_NAME_CHARS = 200
_TOKEN_CHARS = 32
JournalKind = Literal["step", "model", "sleep", "now", "signal", "call"]
"""`signal`: what came of waiting for one, of the release that knows `StepRequested.suspends` on; `call`:
what a node gave that the handler called, of the one that knows `StepRequested.calls` on."""


class JournalEntry(Message):
    """One thing that a handler did: a value that came of it, or an error that the handler caught.

    `scope` is the branch of the handler ("" outside of branches), `ordinal` its number there, counted
    from 1; a model call is known by the `digest` of what was asked, and its `ordinal` counts calls that
    asked the same. `large`: the value has references to blobs."""

    scope: StepKey = ""
    ordinal: Int32
    kind: JournalKind = "step"
    name: Name
    digest: Name = ""
    value: Any = None
    large: bool = False
    error: ErrorInfo | None = None
    started_at_ms: Moment
    finished_at_ms: Moment
    cost_usd: Money = Decimal(0)


class JournalWritten(Message):
    """What one delivery of an attempt has added to its step's journal: entries, or none where it only
    opened it. `number` counts the journal's messages from 0. `begins`: what stands before it is of
    another input, and does not count."""

    run_id: Name
    step: StepKey
    attempt: Int32
    dispatched_at_ms: Moment | None = None
    delivery: Int32 = 1
    worker: Name = ""
    number: Count
    input_digest: Name = ""
    begins: bool = False
    entries: tuple[JournalEntry, ...] = Field(default=(), max_length=MAX_ENTRIES)


class JournalRead(Message):
    """A worker asks what was done for a step, of which it has an attempt: all of these fields are those
    of its StepRequested. `after_seq` is the last sequence that it knows, 0 for none."""

    tenant: Name
    run_id: Name
    step: StepKey
    attempt: Int32
    dispatched_at_ms: Moment | None = None
    capability: Name | None = None
    after_seq: Count = 0


class JournalWrite(JournalRead):
    """A worker adds to the journal of a step, of which it has an attempt. It is added only where
    `after_seq` is the sequence of the journal's last message, 0 where there is none."""

    delivery: Int32 = 1
    worker: Name = ""
    input_digest: Name = ""
    begins: bool = False
    entries: tuple[JournalEntry, ...] = Field(default=(), max_length=MAX_ENTRIES)


JournalRefusal = Literal["taken", "full", "refused", "unavailable"]
"""Why a journal is not read or written: `taken`: a later attempt, or another delivery, has it; `full`:
a bound of journals; `refused`: the question is not what it has to be, or does not show the capability of
an attempt; `unavailable`: not now, ask again."""


class JournalPage(Message):
    """What was done for a step, from a sequence on: there is `more`, or `last_seq` is the last one."""

    messages: tuple[JournalWritten, ...] = ()
    last_seq: Count = 0
    more: bool = False
    refusal: JournalRefusal | None = None
    reason: StoredText = ""


class JournalKept(Message):
    """What was handed in is on disk, as the journal's last message; or it is not, where there is a
    `refusal`."""

    seq: Count = 0
    refusal: JournalRefusal | None = None
    reason: StoredText = ""


def name_of(run_id: str, step: str) -> str:
    """Return the last token of a journal's subject."""
    return hashlib.sha256(f"{run_id}\x1f{step}".encode()).hexdigest()[:_TOKEN_CHARS]
