"""The file of recorded answers: what the models of a real run were asked, and what they answered.

`hocket runs record` writes it, `Play.recorded` reads it; docs/how-to/test-pipelines.md describes it.
"""

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hocket.schemas.checks.bounded import Money
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_CALLS = 10_000
FORMAT: Final = 1


class RecordingInvalid(HocketError):
    """The recording {file} cannot be used: `{field}`: {reason}. {cure}"""

    code = "recording_invalid"
    error_class = ErrorClass.INVALID


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedError(_Part):
    """How a call failed."""

    code: str
    error_class: ErrorClass


class RecordedAnswer(_Part):
    """What a model said, or how the call failed."""

    text: str = ""
    data: Any = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str = ""
    """Why the answer ended, if not because it was complete: `length`, `content_filter` ..."""
    error: RecordedError | None = None


class RecordedCall(_Part):
    """One call of a model by a step."""

    pipeline: str
    step: str
    model: str
    prompt: dict[str, Any] | None = None
    """What was asked: `messages`, `documents`, `context`, `embed`. None where it is not known as it was,
    because personal data was replaced in it or it was too long to be kept."""
    answer: RecordedAnswer
    cost_usd: Money = Decimal(0)
    input_tokens: int = Field(0, ge=0)
    output_tokens: int = Field(0, ge=0)
    takes_ms: float = Field(0.0, ge=0, le=86_400_000)


class Recording(_Part):
    """The calls of a run and its sub-runs, in the order in which they began."""

    hocket_recording: Literal[1]
    """The format of the file."""
    run_id: str
    calls: Annotated[tuple[RecordedCall, ...], Field(max_length=MAX_CALLS)]


def read_recording(file: Path) -> Recording:
    """Return the recording in a file; raise RecordingInvalid if it is missing or malformed."""
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            reason = f"it has {size} bytes; the limit is {MAX_FILE_BYTES}"
            raise _invalid(file, "(file)", reason, "Record a smaller run.")
        value = parse_json(file.read_bytes(), "(file)")
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise _invalid(file, "(file)", reason, "Create it: `hocket runs record RUN`.") from None
    except InvalidInput as error:
        fields = error.fields
        raise _invalid(file, fields["field"], fields["reason"], fields["cure"]) from None
    try:
        return Recording.model_validate(value)
    except ValidationError as error:
        fault = first_fault(error)
        cure = "Create it again: `hocket runs record RUN`."
        raise _invalid(file, fault.field("(file)"), fault.reason, cure) from None


def _invalid(file: Path, field: str, reason: str, cure: str) -> RecordingInvalid:
    return RecordingInvalid(file=file, field=field, reason=reason, cure=cure)
