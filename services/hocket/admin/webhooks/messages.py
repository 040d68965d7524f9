"""Messages to webhooks as defined by the Standard Webhooks specification: a body with `type`,
`timestamp` and `data`, and headers that sign it. Pure.

Source: https://www.standardwebhooks.com
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from standardwebhooks.webhooks import Webhook

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunFinished

SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"
ID_DIGITS = 24
MAX_OUTPUT_BYTES = 65_536
"""A larger output is left out; it can be read from the run."""
SURELY_LARGER_BYTES = 6 * MAX_OUTPUT_BYTES
"""An end that takes more has a larger output: JSON writes a byte of text with up to six (`\\u0041`)."""
MAX_ERROR_CHARS = 2_000
CONTENT = ("output", "output_left_out", "about")
"""The fields of `data` that only webhooks with `content` receive."""
ENDS: Mapping[str, str] = {
    "succeeded": "run.succeeded",
    "degraded": "run.degraded",
    "failed": "run.failed",
    "expired": "run.expired",
    "cancelled": "run.cancelled",
}
"""The event of each status in which a run ends."""


def message_id(*parts: str) -> str:
    """Return the id of a message, derived from what it announces."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    return f"msg_{digest[:ID_DIGITS]}"


def id_of_end(run: RunFinished) -> str:
    """Return the id of the message about a run's end."""
    return message_id(run.run_id, "end", repr(run.finished_at_ms))


def body(event: str, at: datetime, data: Mapping[str, Any]) -> str:
    """Return the body of a message."""
    return _text({"type": event, "timestamp": _moment(at), "data": data})


def end(run: RunFinished, size_bytes: int, *, content: bool) -> tuple[datetime, dict[str, Any]]:
    """Return when a run ended, and the data sent about it; `size_bytes` is the size of the event that
    told of the end."""
    finished_at = _of_ms(run.finished_at_ms)
    told: dict[str, Any] = {
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "version": run.version,
        "status": run.status,
        "accepted_at": _moment(_of_ms(run.accepted_at_ms)),
        "finished_at": _moment(finished_at),
        "deadline_at": _moment(_of_ms(run.deadline_at_ms)),
        "met_deadline": run.status in ("succeeded", "degraded")
        and run.finished_at_ms <= run.deadline_at_ms,
        "cost_usd": None if run.cost_usd is None else format(run.cost_usd, "f"),
        "labels": run.labels or {},
        "error": None if run.error is None else _error(run.error, content=content),
        "url": f"/v1/runs/{run.run_id}",
    }
    if content:
        left_out = run.output_left_out or _is_large(run.output, size_bytes)
        told |= {"output": None if left_out else run.output, "output_left_out": left_out}
    return finished_at, told


def _is_large(output: Any, event_bytes: int) -> bool:
    """Tell whether an output is left out. It is only encoded if the size of its event does not tell."""
    if output is None:
        return False
    return event_bytes > SURELY_LARGER_BYTES or len(_text(output).encode()) > MAX_OUTPUT_BYTES


def without_content(text: str) -> str:
    """Return a body without what only `content` allows: the webhook may have sent it when the message
    was stored, and have lost the right since."""
    told = json.loads(text)
    data = told["data"]
    for name in CONTENT:
        data.pop(name, None)
    if data.get("error"):
        data["error"].pop("message", None)
    return _text(told)


def _text(told: Any) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _error(error: ErrorInfo, *, content: bool) -> dict[str, Any]:
    """Return the data sent about an error; without `content` the text is left out, since it may contain
    user data."""
    told: dict[str, Any] = {"code": error.code, "class": str(error.error_class)}
    return told | ({"message": error.message[:MAX_ERROR_CHARS]} if content else {})


def secret_text(secret: bytes) -> str:
    """Return a secret in the form given to its receiver."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def headers(secrets: Sequence[bytes], message: str, text: str, at: datetime) -> dict[str, str]:
    """Return the headers that sign a message with each of these secrets."""
    at = at.astimezone(UTC)
    signatures = [Webhook(secret).sign(message, at, text) for secret in secrets]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
        "content-type": "application/json",
    }


def _of_ms(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
