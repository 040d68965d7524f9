"""Dead letters: messages that could not be handled, kept byte for byte in the stream DLQ, with why.

`redrive` publishes a letter again where it came from and then drops it. A step whose run was told of its
failure is not redriven: its run has gone on without it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats.js.errors import NotFoundError
from pydantic_core import from_json

from hocket.kit.bus import Bus
from hocket.kit.events import IDEMPOTENCY_KEY
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError

SUBJECT = "Hocket-Dead-Subject"
ERROR = "Hocket-Dead-Error"
MSG_ID = "Hocket-Dead-Msg-Id"
MAX_ERROR_CHARS = 4_000
MAX_LISTED = 1_000
MAX_LOOKED_AT = 10_000
"""Places of the stream that one list looks at: dropped letters and those of other sources leave gaps."""
MAX_NAME_CHARS = 200
_NAMED = ("run_id", "step", "attempt", "call_id", "tenant", "pipeline", "type", "node", "worker")
"""What a message says about whose it is, where it says so."""
_OWN_HEADERS = frozenset({SUBJECT, ERROR, "Nats-Msg-Id"})


class DeadLetterUnknown(HocketError):
    """There is no dead letter {seq}. `hocket dlq list` shows those there are."""

    code = "dead_letter_unknown"
    error_class = ErrorClass.INVALID


class DeadLetterSettled(HocketError):
    """The run `{run_id}` was told that its step `{step}` failed, and has gone on without it. Retry the
    run once the cause is mended: `hocket runs retry {run_id}`."""

    code = "dead_letter_settled"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message with the error that buried it; `seq` names it."""

    seq: int
    source: str
    subject: str
    payload: bytes
    headers: dict[str, str]
    error: ErrorInfo
    buried_at: str

    @property
    def context(self) -> dict[str, Any]:
        """Whose message it is, as far as it says so: run, step, attempt, pipeline ..."""
        named: dict[str, Any] = {}
        if self.source == "task":
            _, _, tenant, pipeline = (self.subject.split(".", 3) + [""] * 4)[:4]
            named = {"tenant": tenant, "pipeline": pipeline}
        else:
            body = _body(self.payload)
            for name in _NAMED:
                value = body.get(name)
                if isinstance(value, int) or (isinstance(value, str) and value):
                    named[name] = value if isinstance(value, int) else value[:MAX_NAME_CHARS]
        return named | self.error.details


async def bury(
    bus: Bus,
    source: str,
    *,
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None,
    error: ErrorInfo,
) -> None:
    """Keep a message that `source` (`task`, `step`, `log`, `usage`) could not handle; what is known of
    its way (deliveries, who had it) belongs into the error's details."""
    text = error.model_copy(update={"message": error.message[:MAX_ERROR_CHARS]}).model_dump_json()
    kept = {name: value for name, value in (headers or {}).items() if name.lower() != "nats-msg-id"}
    if msg_id := (headers or {}).get("Nats-Msg-Id"):
        kept[MSG_ID] = msg_id
    await bus.publish(
        subjects.dead_letter(source), payload, headers={**kept, SUBJECT: subject, ERROR: text}
    )


async def list_(bus: Bus, limit: int = 100, *, source: str | None = None) -> list[DeadLetter]:
    """Return the newest dead letters (of one source), newest first."""
    info = await bus.js.stream_info(subjects.DLQ)
    letters: list[DeadLetter] = []
    last = info.state.last_seq if info.state.messages else 0
    first = max(1, info.state.first_seq, last - MAX_LOOKED_AT + 1)
    for seq in range(last, first - 1, -1):
        with suppress(DeadLetterUnknown):  # dropped or redriven: a hole in the stream
            letter = await show(bus, seq)
            if source is None or letter.source == source:
                letters.append(letter)
        if len(letters) >= min(limit, MAX_LISTED):
            break
    return letters


async def show(bus: Bus, seq: int) -> DeadLetter:
    """Return one dead letter, or raise DeadLetterUnknown."""
    try:
        message = await bus.js.get_msg(subjects.DLQ, seq)
    except NotFoundError:
        raise DeadLetterUnknown(seq=seq) from None
    headers = dict(message.headers or {})
    return DeadLetter(
        seq=seq,
        source=(message.subject or "").rsplit(".", 1)[-1],
        subject=headers.get(SUBJECT, ""),
        payload=message.data or b"",
        headers={k: v for k, v in headers.items() if k not in _OWN_HEADERS},
        error=_error_of(headers),
        buried_at=str(message.time or ""),
    )


async def redrive(bus: Bus, seq: int) -> None:
    """Publish a dead letter where it came from, then drop it; raise DeadLetterSettled for a step whose
    result would be too late."""
    letter = await show(bus, seq)
    context = letter.context
    if letter.source == "step" and {"run_id", "step", "attempt"} <= context.keys():
        raise DeadLetterSettled(run_id=context["run_id"], step=context["step"])
    headers = {k: v for k, v in letter.headers.items() if k != MSG_ID}
    if MSG_ID in letter.headers:  # it was the task's identity, and must stay so
        headers.setdefault(IDEMPOTENCY_KEY, letter.headers[MSG_ID])
    await bus.publish(letter.subject, letter.payload, headers=headers, msg_id=f"redrive:{seq}")
    await drop(bus, seq)


async def drop(bus: Bus, seq: int) -> None:
    """Delete a dead letter, or raise DeadLetterUnknown."""
    await show(bus, seq)
    await bus.js.delete_msg(subjects.DLQ, seq)


def _body(payload: bytes) -> dict[str, Any]:
    try:
        body = from_json(payload)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _error_of(headers: Mapping[str, Any]) -> ErrorInfo:
    text = headers.get(ERROR)
    if text is None:
        return ErrorInfo(code="unknown", message="the letter carries no error")
    return ErrorInfo.model_validate_json(text)
