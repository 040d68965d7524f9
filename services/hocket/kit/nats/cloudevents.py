"""CloudEvents 1.0 in NATS headers (binary mode), and the identity of a task: its idempotency key."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

IDEMPOTENCY_KEY = "Hocket-Idempotency-Key"
DEADLINE_MS = "Hocket-Deadline-Ms"
DEADLINE = "Hocket-Deadline"
PRIORITY = "Hocket-Class"
BUDGET_USD = "Hocket-Budget-Usd"
VERSION = "Hocket-Version"
LABELS = "Hocket-Labels"
EVENT_LABELS = "ce-labels"
"""The CloudEvents extension with the same content."""
REPLY_TO = "Hocket-Reply-To"
PROGRESS = "Hocket-Progress"
ORIGIN_RUN = "Hocket-Origin-Run"
"""The ended run that the task repeats; the headers below say how."""
OPERATION = "Hocket-Operation"
FROM_STEP = "Hocket-From-Step"
STEP_INPUT = "Hocket-Step-Input"
MSG_ID = "Nats-Msg-Id"
ID, SOURCE = "ce-id", "ce-source"
KEY_SEPARATOR = "\x1f"
"""Separates the source and the id of a CloudEvent in the key made of them."""
STREAM_PLACE = "Hocket-Stream-Place"
"""Sequence and time (ns) that a task without a key had in the stream from which it was backed up: a
restored task is still the same run."""
STORED_AT = "Hocket-Stored-At"
"""When the stream of a restored task stored it first (epoch ns)."""
OURS: Final = (
    IDEMPOTENCY_KEY,
    DEADLINE_MS,
    DEADLINE,
    PRIORITY,
    BUDGET_USD,
    VERSION,
    LABELS,
    REPLY_TO,
    PROGRESS,
    ORIGIN_RUN,
    OPERATION,
    FROM_STEP,
    STEP_INPUT,
    STREAM_PLACE,
    STORED_AT,
)
"""All headers of a task that begin with `Hocket-`."""
_SPELLINGS: Final = frozenset(OURS)
_BY_SMALL: Final = {name.lower(): name for name in OURS}
_PREFIX: Final = "hocket-"
_PREFIX_CHARS: Final = len(_PREFIX)
_PLACE = re.compile(r"([0-9]{1,20}) ([0-9]{1,20})", re.ASCII)
TRACEPARENT = "traceparent"
SUBJECT = "ce-subject"


class TaskIdentity(NamedTuple):
    """The key by which two tasks are the same run; `user_given` if the publisher chose it."""

    key: str
    user_given: bool


def event_headers(
    type: str,  # noqa: A002 (the attribute's name in CloudEvents)
    source: str,
    id: str,  # noqa: A002
    subject: str | None = None,
    time_ms: float | None = None,
    traceparent: str | None = None,
) -> dict[str, str]:
    """Return the CloudEvents attributes of an event as NATS headers."""
    headers = {
        "ce-specversion": "1.0",
        "ce-type": type,
        SOURCE: source,
        ID: id,
        "content-type": "application/json",
    }
    if subject is not None:
        headers[SUBJECT] = subject
    if time_ms is not None:
        headers["ce-time"] = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    if traceparent is not None:
        headers[TRACEPARENT] = traceparent
    return headers


def spelled(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return a task's headers with ours as we spell them, whatever their case; the same headers if all
    are. Of a header that is given in several spellings, ours counts, otherwise the first."""
    for name in headers:
        if name not in _SPELLINGS and is_ours(name):
            return _respelled(headers)
    return headers


def is_ours(name: str) -> bool:
    """Tell whether a header's name is one that only we give a meaning, in any case."""
    return name[:_PREFIX_CHARS].lower() == _PREFIX


def spelling_of(name: str) -> str | None:
    """Return our spelling of a header of ours; None if a task has no such header."""
    return _BY_SMALL.get(name.lower())


def _respelled(headers: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, value in headers.items():
        ours = _BY_SMALL.get(name.lower(), name)
        if ours == name:
            made[name] = value
        else:
            made.setdefault(ours, value)
    return made


def key_header(headers: Mapping[str, str]) -> str:
    """Return the header that gives a task its key."""
    if headers.get(IDEMPOTENCY_KEY):
        return IDEMPOTENCY_KEY
    return MSG_ID if _event_key(headers) is None else ID


def task_identity(
    headers: Mapping[str, str] | None, stream_seq: int, stream_time_ns: int
) -> TaskIdentity:
    """Return a task's identity: the key that its publisher gave (`Hocket-Idempotency-Key`, otherwise
    `ce-source` with `ce-id`, otherwise `Nats-Msg-Id`), or without one its sequence and time in the
    stream (`Hocket-Stream-Place` if it was restored). An empty header counts as none."""
    return identity_of(spelled(headers or {}), stream_seq, stream_time_ns)


def identity_of(given: Mapping[str, str], stream_seq: int, stream_time_ns: int) -> TaskIdentity:
    """Return the identity of a task whose headers are `spelled`."""
    if key := given.get(IDEMPOTENCY_KEY):
        return TaskIdentity(key, user_given=True)
    if (key := _event_key(given)) is not None:
        return TaskIdentity(key, user_given=True)
    if place := _PLACE.fullmatch(given.get(STREAM_PLACE, "")):
        return TaskIdentity(f"\x1fstream\x1f{place[1]}\x1f{place[2]}", user_given=False)
    if msg_id := given.get(MSG_ID):
        return TaskIdentity(msg_id, user_given=True)
    return TaskIdentity(f"\x1fstream\x1f{stream_seq}\x1f{stream_time_ns}", user_given=False)


def _event_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a CloudEvent: its source with its id, which is unique only within its source.
    Without one of them there is none."""
    source, event_id = headers.get(SOURCE), headers.get(ID)
    return f"{source}{KEY_SEPARATOR}{event_id}" if source and event_id else None
