"""CloudEvents 1.0 in NATS headers (binary mode), and the identity of a task: its idempotency key."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

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
        "ce-source": source,
        "ce-id": id,
        "content-type": "application/json",
    }
    if subject is not None:
        headers[SUBJECT] = subject
    if time_ms is not None:
        headers["ce-time"] = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    if traceparent is not None:
        headers[TRACEPARENT] = traceparent
    return headers


def task_identity(
    headers: Mapping[str, str] | None, stream_seq: int, stream_time_ns: int
) -> TaskIdentity:
    """Return a task's identity: the key that its publisher gave (`Hocket-Idempotency-Key`, otherwise
    `ce-source` and `ce-id`, otherwise `Nats-Msg-Id`), or without one its sequence and time in the
    stream."""
    given = headers or {}
    if key := given.get(IDEMPOTENCY_KEY):
        return TaskIdentity(key, user_given=True)
    if event_id := given.get("ce-id"):
        return TaskIdentity(f"{given.get('ce-source', '')}\x1f{event_id}", user_given=True)
    if msg_id := given.get("Nats-Msg-Id"):
        return TaskIdentity(msg_id, user_given=True)
    return TaskIdentity(f"\x1fstream\x1f{stream_seq}\x1f{stream_time_ns}", user_given=False)
