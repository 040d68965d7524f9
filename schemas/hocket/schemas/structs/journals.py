"""A journal's messages as coordinators read and write them; values of handlers stay unparsed."""

from typing import Annotated

import msgspec
from msgspec import Meta

from hocket.schemas import journals
from hocket.schemas.checks import bounded
from hocket.schemas.structs.fields import Count, Int32, Moment

_PRINTABLE = r"^[^\x00-\x1f\x7f]*\Z"
_Name = Annotated[str, Meta(max_length=bounded.MAX_NAME_CHARS, pattern=_PRINTABLE)]
_StepKey = Annotated[str, Meta(max_length=bounded.MAX_STEP_CHARS, pattern=_PRINTABLE)]
_Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,12}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?\Z")]
_NOTHING = msgspec.Raw(b"null")


class KeptEntry(msgspec.Struct):
    """The fields of a JournalEntry; its value and its error are left unread."""

    ordinal: Int32
    name: _Name
    started_at_ms: Moment
    finished_at_ms: Moment
    scope: _StepKey = ""
    kind: journals.JournalKind = "step"
    digest: _Name = ""
    value: msgspec.Raw = _NOTHING
    large: bool = False
    error: msgspec.Raw = _NOTHING
    cost_usd: _Amount = "0"


class JournalQuestion(msgspec.Struct):
    """The fields of a JournalRead and of a JournalWrite."""

    tenant: _Name
    run_id: _Name
    step: _StepKey
    attempt: Int32
    dispatched_at_ms: Moment | None = None
    capability: _Name | None = None
    after_seq: Count = 0
    delivery: Int32 = 1
    worker: _Name = ""
    input_digest: _Name = ""
    begins: bool = False
    entries: Annotated[list[KeptEntry], Meta(max_length=journals.MAX_ENTRIES)] = []


class KeptMessage(msgspec.Struct):
    """The fields of a JournalWritten."""

    run_id: str
    step: str
    attempt: int
    dispatched_at_ms: float | None
    delivery: int
    worker: str
    number: int
    input_digest: str
    begins: bool
    entries: list[KeptEntry]


class KeptPage(msgspec.Struct, omit_defaults=True):
    """The fields of a JournalPage, with messages as they are stored."""

    messages: list[msgspec.Raw] = []
    last_seq: int = 0
    more: bool = False
    refusal: journals.JournalRefusal | None = None
    reason: str = ""


read_question = msgspec.json.Decoder(JournalQuestion).decode
read_kept = msgspec.json.Decoder(KeptMessage).decode
