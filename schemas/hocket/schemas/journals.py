"""The journal of a step: what its handler has done, so that another attempt does not repeat it.

It is a list of messages on one subject of the stream JOURNALS. Only coordinators read and write it
there, on behalf of workers that show the capability of one of the step's attempts: a worker asks for
what was done (`JournalRead`), and submits what it has done (`JournalWrite`). Pure.
"""

import hashlib
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from hocket.schemas.checks.bounded import Count, Int32, Moment, Money, Name, StepKey, StoredText
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Message

MAX_ENTRIES = 1_000
"""The most entries of one step's journal."""
MAX_ENTRY_BYTES = 256 * 1024
"""The limit on an entry's value; larger values are moved to a blob."""
MAX_WRITE_BYTES = 640 * 1024
"""The limit on a JournalWrite; workers put at most half a MiB of entries into one."""
MAX_PAGE_BYTES = 640 * 1024
"""The limit on the messages in a JournalPage."""
MAX_JOURNAL_BYTES = 8 * 1024 * 1024
"""The limit on all messages of one step's journal."""
MAX_MESSAGES = 2_048
"""The most messages of one step's journal: its entries, and an opening for each attempt."""
MAX_ENTRY_NAME_CHARS = 200
_TOKEN_CHARS = 32
JournalKind = Literal["step", "model", "sleep", "now", "signal", "call"]
"""`signal`: the outcome of waiting for a signal (since the release with `StepRequested.suspends`);
`call`: the outcome of a node that the handler called (since the release with `StepRequested.calls`)."""


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
"""Why a journal is not read or written. `taken`: a later attempt, or another delivery, has it; `full`: a
bound of journals is reached; `refused`: the request is malformed, or does not have the capability of an
attempt; `unavailable`: not possible now, ask again."""


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
    """Return the last token of the subject of a step's journal."""
    return hashlib.sha256(f"{run_id}\x1f{step}".encode()).hexdigest()[:_TOKEN_CHARS]
