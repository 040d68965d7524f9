"""Webhooks: which events of runs are sent by HTTP, where to, and what became of each delivery."""

from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from hocket.schemas.labels import Labels
from hocket.schemas.moments import Moment
from hocket.schemas.rest import Reply, Request, Text, Token

MAX_WEBHOOKS = 20
"""The most webhooks of one tenant."""
MAX_URL_CHARS = 2_048
MAX_PIPELINES = 100
"""The most pipelines that one webhook may name."""
MAX_OVERLAP_S = 30 * 86_400

RunEvent = Literal[
    "run.succeeded", "run.degraded", "run.failed", "run.expired", "run.cancelled", "run.waiting"
]
RUN_EVENTS: tuple[RunEvent, ...] = (
    "run.succeeded",
    "run.degraded",
    "run.failed",
    "run.expired",
    "run.cancelled",
    "run.waiting",
)
"""The ways in which runs end, and a run that waits for a person's approval."""
TEST_EVENT = "webhook.test"
DeliveryState = Literal["pending", "delivered", "dead"]


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"it is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("write it as https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains credentials; messages are signed instead")
    if parts.fragment:
        raise ValueError("it has a fragment, which is never sent to a server")
    return url


Url = Annotated[
    str,
    Field(max_length=MAX_URL_CHARS, pattern=r"^https?://[\x21-\x7e]+$"),
    AfterValidator(_place),
]


class WebhookBody(Request):
    """A webhook: which `events` to send, for which pipelines and for runs with which labels (all must
    match), and where to. With `content`, messages include outputs of runs and the subject of
    approvals; the key that sets it needs `content.read`. If `enabled` is omitted, it does not change."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "url": "https://hooks.example.com/hocket",
                    "events": ["run.failed", "run.expired", "run.waiting"],
                    "pipelines": ["report"],
                    "labels": {"team": "search"},
                }
            ]
        }
    )

    url: Url
    events: tuple[RunEvent, ...] = Field(RUN_EVENTS, min_length=1, max_length=len(RUN_EVENTS))
    pipelines: tuple[Token, ...] | None = Field(None, min_length=1, max_length=MAX_PIPELINES)
    labels: Labels = Field(default_factory=dict)
    content: bool = Field(False, strict=True)
    description: Text = ""
    enabled: Annotated[bool, Field(strict=True)] | None = None


class RotateSecretBody(Request):
    """For how many seconds messages are also signed with the former secret; 0 ends all former ones."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"overlap_s": 86_400}]})

    overlap_s: float = Field(86_400, ge=0, le=MAX_OVERLAP_S, strict=True)


class RedeliverBody(Request):
    """The period whose dead deliveries are sent again: created at or after `since`, and before
    `until`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"since": "2026-03-01T00:00:00Z"}]})

    since: Moment
    until: Moment | None = None


class Webhook(Reply):
    """A webhook. `failing_since`: since when nothing has been delivered, if the last attempt failed;
    `dropped`: events that were discarded because too many were waiting; `former_until`: until when
    messages are also signed with the secret before the last rotation."""

    name: str
    url: str
    description: str
    events: tuple[str, ...]
    pipelines: tuple[str, ...] | None = None
    labels: dict[str, str]
    content: bool
    enabled: bool
    disabled_reason: str
    failing_since: datetime | None = None
    dropped: int
    former_until: datetime | None = None
    revision: int
    created_by: str
    created_at: datetime
    changed_by: str
    changed_at: datetime


class WebhookMade(Webhook):
    """A webhook, with its secret if it is new; the secret is shown only once."""

    secret: str | None = None


class WebhookList(Reply):
    """Webhooks, newest first; `next` as in RunList."""

    webhooks: tuple[Webhook, ...]
    next: str | None = None


class Delivery(Reply):
    """The outcome of a message: `pending`, it will be sent at `next_at`; `delivered`, the response
    was 2xx; `dead`, all attempts failed. `message_id` is sent in the header `webhook-id`, the same
    for every attempt."""

    message_id: str
    event: str
    run_id: str | None = None
    state: DeliveryState
    attempts: int
    next_at: datetime | None = None
    created_at: datetime
    tried_at: datetime | None = None
    last_status: int | None = None
    last_error: str


class DeliveryDetail(Delivery):
    """A delivery with its payload; withheld from keys without `content.read` if it may include
    content."""

    body: Any = None


class DeliveryList(Reply):
    """Deliveries, newest first; `next` as in RunList."""

    deliveries: tuple[Delivery, ...]
    next: str | None = None


class Redelivered(Reply):
    """How many deliveries will be sent again; if this is the maximum per request, repeat the request."""

    deliveries: int
