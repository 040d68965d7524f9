"""The AsyncAPI document of the messages between workers and the platform.

`python -m hocket.cli.worker_asyncapi` prints it; `docs/reference/worker-protocol.yaml` holds it. What
AsyncAPI cannot express (order, time, JetStream) is in docs/reference/worker-protocol.md.
"""

import sys
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import yaml
from pydantic.json_schema import models_json_schema

from hocket.kit.blobs import MAX_BLOB_BYTES
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import CONSUMERS_ASKED
from hocket.schemas.journals import JournalKept, JournalPage, JournalRead, JournalWrite
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptReturned,
    AttemptsFinished,
    CallCancelled,
    CallReply,
    CallRequest,
    Message,
    StepCancelled,
    StepRequested,
    TypeDescribed,
    WorkerAnnounced,
)
from hocket.schemas.tracing.log_lines import LineBatch

_NOTHING = {"description": "No body.", "payload": {"type": "string", "maxLength": 0}}
_TEXT = {"type": "string"}
BY_HAND: dict[str, dict[str, Any]] = {
    "Asked": {**_NOTHING, "title": "Every worker announces itself now."},
    "ConsumersAsked": {
        "title": "A worker with a key requests the consumers of a pool.",
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "properties": {"ack_wait_s": {"type": "number", "exclusiveMinimum": 0}},
        },
    },
    "ConsumersMade": {
        "title": "`+OK` if they now exist, otherwise the reason.",
        "contentType": "text/plain",
        "payload": _TEXT,
    },
    "LinesKept": {**_NOTHING, "title": "The lines are stored."},
    "UnreadableStep": {
        "title": "A message of `steps` that cannot be processed, as received.",
        "headers": {
            "type": "object",
            "required": ["Hocket-Dead-Subject", "Hocket-Dead-Error"],
            "properties": {
                "Hocket-Dead-Subject": {**_TEXT, "description": "Subject it came from."},
                "Hocket-Dead-Error": {**_TEXT, "description": "An ErrorInfo as JSON."},
            },
        },
        "payload": {"description": "The bytes of the message."},
    },
}
"""Messages that are not the JSON of a model."""
BLOB_REFERENCE = {
    "title": "BlobReference",
    "description": "Replaces a value in `input`, `output` or a journal that is too large for a message. "
    "As a file: HOCKET_BLOBS_DIR/tenant-TENANT/FIRST TWO DIGITS/HASH.",
    "type": "object",
    "required": ["$blob", "size", "type"],
    "additionalProperties": False,
    "properties": {
        "$blob": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "The SHA-256 of the bytes.",
        },
        "size": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_BLOB_BYTES,
            "description": "Size in bytes.",
        },
        "type": {"enum": ["text", "json"], "description": "UTF-8 text, or JSON in UTF-8."},
    },
}
HEADERS: dict[str, dict[str, str]] = {
    "StepRequested": {
        "traceparent": "W3C trace context of the attempt.",
        subjects.ASKED_AGAIN: "The step is dispatched again: its calls may be in progress.",
    },
    "AttemptFinished": {
        "Nats-Msg-Id": "RUN:STEP:ATTEMPT:M:f:CAPABILITY, followed by `:took` if the result has `took`."
    },
    "CallRequest": {
        subjects.ASKED_AGAIN: "The call is requested again because no reply arrived.",
    },
}


class Channel(NamedTuple):
    """A channel: its subject, its message, what the platform does with it, and the channel of the
    reply."""

    name: str
    address: str
    message: type[Message] | str
    action: Literal["send", "receive"]
    reply: str = ""

    @property
    def message_name(self) -> str:
        """The name of the message."""
        return self.message if isinstance(self.message, str) else self.message.__name__


_DEAD = subjects.dead_letter("step", subjects.UNATTRIBUTED)
_POOL = "{pool}"
_INBOX = "{reply_to}"
CHANNELS: tuple[Channel, ...] = (
    Channel("steps", "hocket.step.{pool}.{lane}", StepRequested, "send"),
    Channel("result", "hocket.log.{partition}.finished", AttemptFinished, "receive"),
    Channel("results", "hocket.log.{partition}.results", AttemptsFinished, "receive"),
    Channel("returned", "hocket.log.{partition}.returned", AttemptReturned, "receive"),
    Channel("unreadableSteps", _DEAD, "UnreadableStep", "receive"),
    Channel(
        "journalReads", f"{subjects.JOURNAL_READ}.{_POOL}", JournalRead, "receive", "journalPages"
    ),
    Channel("journalPages", _INBOX, JournalPage, "send"),
    Channel(
        "journalWrites", f"{subjects.JOURNAL_WRITE}.{_POOL}", JournalWrite, "receive", "journalKept"
    ),
    Channel("journalKept", _INBOX, JournalKept, "send"),
    Channel("logLines", f"{subjects.WORKER_LINES}.{_POOL}", LineBatch, "receive", "linesKept"),
    Channel("linesKept", _INBOX, "LinesKept", "send"),
    Channel("cancellations", subjects.CANCEL_FILTER, StepCancelled, "send"),
    Channel("asked", subjects.WORKER_ASKED, "Asked", "send"),
    Channel("announcements", subjects.WORKER_ANNOUNCED, WorkerAnnounced, "receive"),
    Channel("descriptions", subjects.WORKER_DESCRIBED, TypeDescribed, "receive"),
    Channel(
        "consumers", f"{CONSUMERS_ASKED}.{_POOL}", "ConsumersAsked", "receive", "consumersMade"
    ),
    Channel("consumersMade", _INBOX, "ConsumersMade", "send"),
    Channel(
        "announcementsWithKey", f"{subjects.WORKER_ANNOUNCED}.{_POOL}", WorkerAnnounced, "receive"
    ),
    Channel(
        "descriptionsWithKey", f"{subjects.WORKER_DESCRIBED}.{{type}}", TypeDescribed, "receive"
    ),
    Channel("modelCalls", subjects.GATEWAY_CALL, CallRequest, "receive", "modelReplies"),
    Channel("modelReplies", _INBOX, CallReply, "send"),
    Channel("modelCancellations", subjects.GATEWAY_CANCEL, CallCancelled, "receive"),
)
PARAMETERS = {
    "type": "The node type, with `-` in place of its dots.",
    "pool": "The node type, with `-` in place of its dots, and `@` with a queue: `crm-lookup`, "
    "`python@gpu`.",
    "lane": "`urgent`, `normal` or `batch`.",
    "partition": "The partition of the run: `partition` of the step, a whole number from 0.",
    "reply_to": "The inbox of the request.",
}


def document() -> str:
    """Return the AsyncAPI document as YAML."""
    models = {one.message_name: one.message for one in CHANNELS if not isinstance(one.message, str)}
    _, schemas = models_json_schema(
        [(model, "validation") for model in models.values()],
        ref_template="#/components/schemas/{model}",
    )
    described = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Hocket: the worker protocol",
            "version": version("hocket"),
            "description": "See worker-protocol.md.",
        },
        "channels": {one.name: _channel(one) for one in CHANNELS},
        "operations": {one.name: _operation(one) for one in CHANNELS},
        "components": {
            "messages": {name: _message(name) for name in models} | BY_HAND,
            "schemas": schemas["$defs"] | {"BlobReference": BLOB_REFERENCE},
        },
    }
    return yaml.dump(described, Dumper=_Whole, sort_keys=False, allow_unicode=True, width=100)


class _Whole(yaml.SafeDumper):
    """Writes objects that occur several times in full each time."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - of the base class
        """Never use aliases."""
        return True


def _channel(channel: Channel) -> dict[str, Any]:
    address = channel.address
    described: dict[str, Any] = {
        "address": address,
        "messages": {"message": {"$ref": f"#/components/messages/{channel.message_name}"}},
    }
    named = {
        name: {"description": text} for name, text in PARAMETERS.items() if f"{{{name}}}" in address
    }
    return described | ({"parameters": named} if named else {})


def _operation(channel: Channel) -> dict[str, Any]:
    described: dict[str, Any] = {
        "action": channel.action,
        "channel": {"$ref": f"#/channels/{channel.name}"},
    }
    if channel.reply:
        described["reply"] = {"channel": {"$ref": f"#/channels/{channel.reply}"}}
    return described


def _message(name: str) -> dict[str, Any]:
    described: dict[str, Any] = {"contentType": "application/json"}
    if name in HEADERS:
        properties = {
            header: {"type": "string", "description": text}
            for header, text in HEADERS[name].items()
        }
        described["headers"] = {"type": "object", "properties": properties}
    return described | {"payload": {"$ref": f"#/components/schemas/{name}"}}


if __name__ == "__main__":
    sys.stdout.write(document())
