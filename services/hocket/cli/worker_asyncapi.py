"""The AsyncAPI document of what workers and the platform say to each other.

`python -m hocket.cli.worker_asyncapi` prints it; `docs/reference/worker-protocol.yaml` holds it. What
it cannot say (order, time, JetStream) is in docs/reference/worker-protocol.md.
"""

import sys
from importlib.metadata import version
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

from hocket.schemas import subjects
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

CHANNELS: tuple[tuple[str, str, type[Message], str], ...] = (
    ("steps", "hocket.step.{pool}.{lane}", StepRequested, "send"),
    ("result", "hocket.log.{partition}.finished", AttemptFinished, "receive"),
    ("results", "hocket.log.{partition}.results", AttemptsFinished, "receive"),
    ("returned", "hocket.log.{partition}.returned", AttemptReturned, "receive"),
    ("journalReads", f"{subjects.JOURNAL_READ}.{{pool}}", JournalRead, "receive"),
    ("journalPages", "{reply_to}", JournalPage, "send"),
    ("journalWrites", f"{subjects.JOURNAL_WRITE}.{{pool}}", JournalWrite, "receive"),
    ("journalKept", "{reply_to}", JournalKept, "send"),
    ("logLines", f"{subjects.WORKER_LINES}.{{pool}}", LineBatch, "receive"),
    ("cancellations", subjects.CANCEL_FILTER, StepCancelled, "send"),
    ("announcements", subjects.WORKER_ANNOUNCED, WorkerAnnounced, "receive"),
    ("descriptions", subjects.WORKER_DESCRIBED, TypeDescribed, "receive"),
    ("modelCalls", subjects.GATEWAY_CALL, CallRequest, "receive"),
    ("modelReplies", "{reply_to}", CallReply, "send"),
    ("modelCancellations", subjects.GATEWAY_CANCEL, CallCancelled, "receive"),
)
"""Channel, subject, message, and what the platform does with it."""
PARAMETERS = {
    "pool": "The node type with `-` for its dots, and `@` with a queue: `crm-lookup`, `python@gpu`.",
    "lane": "`urgent`, `normal` or `batch`.",
    "partition": "That of the step.",
    "reply_to": "The inbox of the request.",
}


def document() -> str:
    """Return the AsyncAPI document as YAML."""
    models = [model for _, _, model, _ in CHANNELS]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    described = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Hocket: the protocol of workers",
            "version": version("hocket"),
            "description": "See worker-protocol.md.",
        },
        "channels": {name: _channel(address, model) for name, address, model, _ in CHANNELS},
        "operations": {
            name: {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name, _, _, action in CHANNELS
        },
        "components": {
            "messages": {
                model.__name__: {
                    "contentType": "application/json",
                    "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
                }
                for model in models
            },
            "schemas": schemas["$defs"],
        },
    }
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True, width=100)


def _channel(address: str, model: type[Message]) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": address,
        "messages": {"message": {"$ref": f"#/components/messages/{model.__name__}"}},
    }
    named = {
        name: {"description": text} for name, text in PARAMETERS.items() if f"{{{name}}}" in address
    }
    return channel | ({"parameters": named} if named else {})


if __name__ == "__main__":
    sys.stdout.write(document())
