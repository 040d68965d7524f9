"""Dead letters: messages that could not be handled, kept byte for byte in the stream DLQ, and why.

A letter belongs to a tenant, which is the last token of its subject: the tenant of the task, run or call
that it was, or `subjects.UNATTRIBUTED` if the message names none. Those who act for a tenant can see,
redrive and drop only that tenant's letters.

`redrive` publishes a letter again on its original subject and then drops it. A step whose run was told
of its failure is not redriven, because the run has continued without it. A letter that names a subject
which its source never reads was not written by us, and is not redriven either.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Raw
from pydantic_core import from_json, to_json

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import IDEMPOTENCY_KEY, STORED_AT, STREAM_PLACE, task_identity
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import headers_of
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, id_of, sealed
from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, PayloadTooLarge
from hocket.schemas.messages import StepRequested

SUBJECT = "Hocket-Dead-Subject"
ERROR = "Hocket-Dead-Error"
MSG_ID = "Hocket-Dead-Msg-Id"
STEP = "step"
"""The source of letters about messages that workers could not handle."""
MAX_ERROR_CHARS = 4_000
MAX_LISTED = 1_000
MAX_NAME_CHARS = 200
MAX_SUBJECT_CHARS = 1_000
LETTER_BYTES = 64 * 1024
"""Room for a letter's own headers: an error in JSON and a subject."""
CUT = "Hocket-Dead-Cut"
"""Header with the size of the original message, if its end could not be kept."""
API_TIMEOUT_MS = 5_000.0
_NAMED = ("run_id", "step", "attempt", "call_id", "tenant", "pipeline", "type", "node", "worker")
"""Fields of a message that say whose it is, if it has them."""
_WHOSE = msgspec.json.Decoder(
    msgspec.defstruct("_Whose", [(name, Raw, Raw(b"")) for name in (*_NAMED, "attribution")])
)
LONG_BYTES = 64 * 1024
"""Of a longer message only the fields that say whose it is are read."""
MAX_RAW_BYTES = 32 * 1024
"""The longest such field that is read; an attribution has up to 16 kB."""
_CAME_FROM = {
    "task": "hocket.task.",
    "log": "hocket.log.",
    "step": "hocket.step.",
}
"""Prefix of the subjects that each source reads."""
_TOKEN = re.compile(r"[^\x00-\x20\x7f*>.]+")
"""A token of a subject that is not a wildcard."""
_OWN_HEADERS = frozenset({SUBJECT, ERROR, "Nats-Msg-Id"})
_SERVERS = "nats-"
"""Prefix of the headers that tell the server what to do with a message; a letter does not keep them."""
_NOT_FOUND = 404


class DeadLetterUnknown(HocketError):
    """There is no dead letter {seq}. `hocket dlq list` shows the existing ones."""

    code = "dead_letter_unknown"
    error_class = ErrorClass.INVALID


class DeadLetterSettled(HocketError):
    """The run `{run_id}` was told that its step `{step}` failed, and has gone on without it. Retry
    the run once the cause is fixed: `hocket runs retry {run_id}`."""

    code = "dead_letter_settled"
    error_class = ErrorClass.INVALID


class DeadLetterForeign(HocketError):
    """Dead letter {seq} says that it came from `{subject}`, which `{source}` does not read. It was not
    written by Hocket: look at its payload, then drop it."""

    code = "dead_letter_foreign"
    error_class = ErrorClass.INVALID


class DeadLetterCut(HocketError):
    """Dead letter {seq} does not hold its whole message, which was too large for that ({cut}). Publish
    the message again from where it came, then drop the letter."""

    code = "dead_letter_cut"
    error_class = ErrorClass.INVALID


class RunLetterSettled(DeadLetterSettled):
    """The run `{run_id}` has ended with this error. Retry it once the cause is fixed:
    `hocket runs retry {run_id}`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message with the error that made it a dead letter; `seq` identifies it. `tenant` is UNATTRIBUTED
    if the message names none."""

    seq: int
    source: str
    tenant: str
    subject: str
    payload: bytes
    headers: dict[str, str]
    error: ErrorInfo
    buried_at: str

    payload_bytes: int
    """The size of the whole payload; in a list, `payload` may hold only its beginning."""
    context: Mapping[str, Any]
    """Whose message it is, as far as it says: run, step, attempt, pipeline ..."""


async def bury(
    bus: Bus,
    source: str,
    *,
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None,
    error: ErrorInfo,
    tenant: str | None = None,
) -> None:
    """Keep a message that `source` (`task`, `step`, `log`, `usage`) could not handle. What is known of
    its history (deliveries, who had it) belongs in the error's details. Without a `tenant`, the letter
    belongs to the tenant that the message names. A message too large for the server's limit loses its
    headers and, if need be, the end of its payload; the letter says so in the header CUT."""
    text = _text_of(error)
    kept = {n: v for n, v in (headers or {}).items() if not n.lower().startswith(_SERVERS)}
    if msg_id := (headers or {}).get("Nats-Msg-Id"):
        kept[MSG_ID] = msg_id
    letter = {SUBJECT: subject[:MAX_SUBJECT_CHARS], ERROR: text}
    where = subject_of(source, subject, payload, tenant)
    if source == STEP:
        where = bus.identity.letter_subject(where)
    try:
        await bus.publish(where, payload, headers={**kept, **letter}, reserve_bytes=0)
    except PayloadTooLarge as too_large:
        room = too_large.fields["limit_bytes"] - LETTER_BYTES
        letter[CUT] = f"{len(payload)} bytes with {len(kept)} headers"
        await bus.publish(where, payload[:room], headers=letter, reserve_bytes=0)


def subject_of(source: str, subject: str, payload: bytes, tenant: str | None = None) -> str:
    """Return the subject of a letter, which belongs to `tenant` or to the tenant that the message
    names."""
    return subjects.dead_letter(source, tenant or _tenant_of(source, subject, payload))


def post_run(
    bus: Bus,
    *,
    run_id: str,
    tenant: str,
    pipeline: str,
    error: ErrorInfo,
    capabilities: Capabilities | None = None,
) -> None:
    """Write a letter that names a run which was set aside as a whole, without waiting for its
    acknowledgement."""
    named = {"run_id": run_id, "tenant": tenant, "pipeline": pipeline}
    payload = to_json(
        {name: stored_text(value, limit=MAX_NAME_CHARS) for name, value in named.items()}
    )
    bus.publish_durable(
        subjects.dead_letter("run", _tenant_of("run", "", payload)),
        payload,
        msg_id=id_of(capabilities, f"{run_id}:set-aside:{error.code}"),
        headers={SUBJECT: "", ERROR: _text_of(error)},
        reserve_bytes=0,
    )


async def list_(
    bus: Bus,
    limit: int = 100,
    *,
    source: str | None = None,
    tenant: str | None = None,
    before: int | None = None,
    payload_bytes: int | None = None,
) -> list[DeadLetter]:
    """Return up to `limit` dead letters (of one source, of one tenant), newest first, each with at most
    `payload_bytes` of its payload; with `before`, those with lower numbers. Only matching letters are
    read, however many others lie between."""
    wanted = f"hocket.dlq.{source or '*'}.{tenant or '>'}"
    info = await bus.js.stream_info(subjects.DLQ, subjects_filter=wanted)
    there = sum((info.state.subjects or {}).values())
    count = min(limit, MAX_LISTED, there)
    found: list[DeadLetter] = []
    end, width = info.state.last_seq, max(count, 1)
    if before is not None:
        end = min(end, before - 1)
    while len(found) < count and end >= max(1, info.state.first_seq):
        start = max(1, info.state.first_seq, end - width + 1)
        older = await _between(bus, wanted, start, end, payload_bytes)
        found = older[max(0, len(older) + len(found) - count) :] + found
        end = start - 1
        width *= 1 if older else 2
    return found[::-1]


async def _between(
    bus: Bus, wanted: str, start: int, end: int, payload_bytes: int | None
) -> list[DeadLetter]:
    """Return the letters with a wanted subject between two sequences of the stream, oldest first."""
    letters: list[DeadLetter] = []
    while start <= end:
        try:
            letter = await _letter(bus, {"seq": start, "next_by_subj": wanted})
        except DeadLetterUnknown:
            break
        if letter.seq > end:
            break
        letters.append(replace(letter, payload=letter.payload[:payload_bytes]))
        start = letter.seq + 1
    return letters


async def show(bus: Bus, seq: int, *, tenant: str | None = None) -> DeadLetter:
    """Return one dead letter, or raise DeadLetterUnknown if there is none or it is another tenant's."""
    letter = await _letter(bus, {"seq": seq})
    if tenant is not None and letter.tenant != tenant:
        raise DeadLetterUnknown(seq=seq)
    return letter


async def _letter(bus: Bus, which: Mapping[str, Any]) -> DeadLetter:
    answer = await bus.api(f"STREAM.MSG.GET.{subjects.DLQ}", which, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        if answer["error"].get("code") == _NOT_FOUND:
            raise DeadLetterUnknown(seq=which["seq"])
        raise BusUnavailable(reason=answer["error"].get("description", "no message"))
    message = answer["message"]
    headers = headers_of(b64decode(message.get("hdrs", "")))
    _, _, source, owner = (message["subject"].split(".", 3) + [""] * 4)[:4]
    payload, error = b64decode(message.get("data", "")), _error_of(headers)
    subject = headers.get(SUBJECT, "")
    return DeadLetter(
        seq=message["seq"],
        source=source,
        tenant=owner,
        subject=subject,
        payload=payload,
        headers={k: v for k, v in headers.items() if k not in _OWN_HEADERS},
        error=error,
        buried_at=message.get("time", ""),
        payload_bytes=len(payload),
        context=_context(source, subject, payload) | error.details,
    )


def _context(source: str, subject: str, payload: bytes) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if source == "task":
        _, _, tenant, pipeline = (subject.split(".", 3) + [""] * 4)[:4]
        return {"tenant": tenant, "pipeline": pipeline}
    body = _body(payload)
    for name in _NAMED:
        value = body.get(name)
        if isinstance(value, int) or (isinstance(value, str) and value):
            named[name] = value if isinstance(value, int) else value[:MAX_NAME_CHARS]
    return named


async def redrive(
    bus: Bus,
    seq: int,
    *,
    tenant: str | None = None,
    capabilities: Capabilities | None = None,
    usage_seals: Capabilities | None = None,
) -> None:
    """Publish a dead letter (of that tenant) on its original subject, then drop it. Raises
    DeadLetterSettled for a step whose result would be too late, DeadLetterCut for a letter without the
    whole message, and DeadLetterForeign for one whose source does not read that subject. A usage
    record gets a seal of `usage_seals`: redriving it vouches for it."""
    letter = await show(bus, seq, tenant=tenant)
    if letter.source == "run":
        raise RunLetterSettled(run_id=letter.context.get("run_id", ""))
    if not _is_ours(letter):
        raise DeadLetterForeign(
            seq=seq, subject=letter.subject[:MAX_NAME_CHARS], source=letter.source
        )
    if letter.source == STEP:
        _check_unreadable(letter)
    if CUT in letter.headers:
        raise DeadLetterCut(seq=seq, cut=letter.headers[CUT][:MAX_NAME_CHARS])
    # as a new task: the time is that at which the refused one was stored
    headers = {k: v for k, v in letter.headers.items() if k not in {MSG_ID, STORED_AT}}
    named = task_identity(headers, 0, 0).user_given or STREAM_PLACE in headers
    if MSG_ID in letter.headers and not named:  # it was the task's identity, and must remain so
        headers[IDEMPOTENCY_KEY] = letter.headers[MSG_ID]
    if letter.source == "usage":
        headers.pop(SEAL, None)
        headers.update(sealed(usage_seals, letter.subject, letter.payload) or {})
    msg_id = id_of(capabilities, f"redrive:{seq}")
    await bus.publish(letter.subject, letter.payload, headers=headers, msg_id=msg_id)
    with suppress(DeadLetterUnknown):  # also redriven by somebody else: the id makes it one message
        await drop(bus, seq)


async def drop(bus: Bus, seq: int, *, tenant: str | None = None) -> None:
    """Delete a dead letter (of that tenant), or raise DeadLetterUnknown."""
    await show(bus, seq, tenant=tenant)
    named = f"STREAM.MSG.DELETE.{subjects.DLQ}"
    answer = await bus.api(named, {"seq": seq}, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        await show(bus, seq)  # raises DeadLetterUnknown if somebody else has dropped it by now
        raise BusUnavailable(reason=answer["error"].get("description", "it was not deleted"))


def _tenant_of(source: str, subject: str, payload: bytes) -> str:
    """Return the tenant that a message names: a task in its subject, all others in their body."""
    if source == "task":
        tenant: Any = (subject.split(".") + [""] * 3)[2]
    else:
        body = _body(payload)
        whose = body.get("attribution") if source == "usage" else body
        tenant = whose.get("tenant") if isinstance(whose, dict) else None
    if isinstance(tenant, str) and subjects.TOKEN.fullmatch(tenant):
        return tenant
    return subjects.UNATTRIBUTED


def _is_ours(letter: DeadLetter) -> bool:
    """Tell whether a letter can have come from the subject that it names, and from its own tenant."""
    if letter.source == "task":
        tokens = letter.subject.split(".")
        fits = len(tokens) == 4 and all(subjects.TOKEN.fullmatch(name) for name in tokens[2:])
        return fits and letter.subject.startswith("hocket.task.") and tokens[2] == letter.tenant
    if letter.source == "usage":
        return letter.subject == subjects.USAGE_SUBJECT and _is_of_one_tenant(letter)
    start = _CAME_FROM.get(letter.source)
    return (
        start is not None
        and letter.subject.startswith(start)
        and all(_TOKEN.fullmatch(name) for name in letter.subject.split("."))
    )


def _is_of_one_tenant(letter: DeadLetter) -> bool:
    """Tell whether all records of a letter name its tenant, or it belongs to none: who may redrive it
    vouches for each of them. One that was cut is not redriven at all."""
    if letter.tenant == subjects.UNATTRIBUTED or CUT in letter.headers:
        return True
    return all(
        _tenant_of("usage", "", line) == letter.tenant for line in letter.payload.split(b"\n")
    )


def _check_unreadable(letter: DeadLetter) -> None:
    """Raise DeadLetterSettled if a step can be read, by a worker or by name: a worker would run it, and
    a letter that a guest has forged may be to the workers of any pool."""
    named = letter.context
    if {"run_id", "step", "attempt"} <= named.keys():
        raise DeadLetterSettled(run_id=named["run_id"], step=named["step"])
    with suppress(ValueError):  # it cannot be read
        step = StepRequested.model_validate_json(letter.payload)
        raise DeadLetterSettled(run_id=step.run_id, step=step.step)


def _text_of(error: ErrorInfo) -> str:
    short = error.model_copy(update={"message": stored_text(error.message, limit=MAX_ERROR_CHARS)})
    try:
        return short.model_dump_json()
    except ValueError:  # something in it cannot be written as JSON
        return ErrorInfo(code=error.code, message=short.message).model_dump_json()


def _body(payload: bytes) -> Mapping[str, Any]:
    """Return a message as JSON; of a long one only what says whose it is, because a megabyte of small
    values takes fifty milliseconds to read, in which nothing else would go on."""
    if len(payload) > LONG_BYTES:
        return _named(payload)
    try:
        body = from_json(payload)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _named(payload: bytes) -> dict[str, Any]:
    try:
        found = msgspec.structs.asdict(_WHOSE.decode(payload))
        short = {name: raw for name, raw in found.items() if 0 < len(bytes(raw)) <= MAX_RAW_BYTES}
        return {name: from_json(bytes(raw)) for name, raw in short.items()}
    except (ValueError, RecursionError):
        return {}


def _error_of(headers: Mapping[str, Any]) -> ErrorInfo:
    text = headers.get(ERROR)
    if text is None:
        return ErrorInfo(code="unknown", message="the letter carries no error")
    try:
        return ErrorInfo.model_validate_json(text)
    except ValueError:
        return ErrorInfo(code="unknown", message="the letter's error cannot be read")
