"""Log lines of steps' handlers, on their way from a worker to a ledger.

The bounds on what is kept are here: at most MAX_ATTEMPT_LINES lines per attempt, MAX_RUN_LINES per run.
"""

from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hocket.schemas.checks.bounded import Int32, Moment, Name, StepKey, stored_text
from hocket.schemas.messages import Message

MAX_TEXT_CHARS = 2_000
MAX_FIELDS_CHARS = 4_000
"""The limit on a line's fields, as JSON; longer ones are left out."""
MAX_ATTEMPT_LINES = 1_000
"""The most lines of one delivery of an attempt."""
MAX_ATTEMPT_CHARS = 256 * 1024
"""The limit on all texts and fields of one delivery of an attempt."""
MAX_RUN_LINES = 10_000
MAX_BATCH_LINES = 500
MAX_BATCH_BYTES = 512 * 1024

Level = Literal["debug", "info", "warning", "error", "critical"]


class LogLine(Message):
    """A line: its place among those of its delivery, what it says, and its fields as a JSON object."""

    number: Annotated[int, Field(ge=0, lt=MAX_ATTEMPT_LINES)]
    at_ms: Moment
    level: Level = "info"
    text: Annotated[str, BeforeValidator(partial(stored_text, limit=MAX_TEXT_CHARS))]
    fields: Annotated[str, Field(max_length=MAX_FIELDS_CHARS)] = ""


class AttemptLines(Message):
    """Lines of one attempt, with the capability that came with its step."""

    tenant: Name
    run_id: Name
    step: StepKey
    attempt: Int32
    delivery: Int32 = 1
    dispatched_at_ms: Moment | None = None
    capability: Name = ""
    worker: Name = ""
    lines: Annotated[tuple[LogLine, ...], Field(max_length=MAX_BATCH_LINES)]


class LineBatch(Message):
    """Lines of several attempts on their way to a ledger."""

    attempts: Annotated[tuple[AttemptLines, ...], Field(max_length=MAX_BATCH_LINES)]
