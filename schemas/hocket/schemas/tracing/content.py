"""Prompts and answers of model calls, in the form in which they are kept if a policy says so."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hocket.schemas.checks.bounded import Moment, Name, StepKey
from hocket.schemas.messages import Attribution, Message
from hocket.schemas.rest import Reply

MAX_BATCH = 200
"""The most calls in one message."""

Kept = Literal["redacted", "full"]


class CallContent(Message):
    """What a call asked and what it got: whole, or with personal data replaced by placeholders.
    `is_cut`: one of them was too long, and what is left is its beginning as text."""

    call_id: StepKey
    attribution: Attribution
    model: Name
    kept: Kept
    prompt: Any
    answer: Any
    is_cut: bool = False
    started_at_ms: Moment


class ContentBatch(Message):
    """Content on its way to a ledger."""

    calls: Annotated[tuple[CallContent, ...], Field(max_length=MAX_BATCH)]


class KeptContent(Reply):
    """What is kept of a call; `kept` says whether personal data was replaced."""

    call_id: str
    run_id: str | None
    step: str | None
    attempt: int | None
    model: str
    kept: Kept
    prompt: Any
    answer: Any
    is_cut: bool
    started_at: datetime


class ContentList(Reply):
    """Prompts and answers, the earliest first; `next` as in RunList, and `truncated` if there is one."""

    content: tuple[KeptContent, ...]
    truncated: bool = False
    next: str | None = None
