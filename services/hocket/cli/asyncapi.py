"""The AsyncAPI document of every public subject, made by FastStream from the messages themselves.

`python -m hocket.cli.asyncapi` prints it; `docs/asyncapi.yaml` holds it. The application declared here
describes and is never run: the hot paths speak to NATS directly (docs/decisions/0002-faststream.md).
"""

import sys
from typing import Any

from faststream import FastStream
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from pydantic import RootModel

from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished, StepChanged, TaskRejected, UsageRecord


class Task(RootModel[dict[str, Any]]):
    """The input of a pipeline: one JSON object that its input schema accepts. Headers, all optional:
    Hocket-Idempotency-Key, Hocket-Deadline-Ms or Hocket-Deadline, Hocket-Class, Hocket-Budget-Usd,
    Hocket-Version, Hocket-Reply-To, Hocket-Progress, traceparent, and CloudEvents' ce-*."""


def document() -> str:
    """Return the AsyncAPI document as YAML."""
    text: str = _application().schema.to_specification().to_yaml()
    return text


def _application() -> FastStream:
    broker = NatsBroker()

    @broker.subscriber(subjects.task("{tenant}", "{pipeline}"), title="Task")
    async def task(body: Task) -> None:
        """A task event begins a run; the stream TASKS keeps it until its run is committed."""

    for kind, model, text in (
        (RunFinished.kind, RunFinished, "A run ended, and Postgres holds it."),
        (TaskRejected.kind, TaskRejected, "A task was refused at intake."),
    ):
        subject = subjects.event("{tenant}", "{pipeline}", kind)
        broker.publisher(subject, title=model.__name__, description=text, schema=model)
    broker.publisher(
        "{reply_to}",
        title="StepChanged",
        description="Progress of a run, to the inbox in Hocket-Reply-To, with Hocket-Progress: 1.",
        schema=StepChanged,
    )
    broker.publisher(
        subjects.USAGE_SUBJECT,
        title="UsageRecord",
        description="What one model call used and cost.",
        schema=UsageRecord,
    )
    specification = AsyncAPI(
        title="Hocket",
        version="0.1.0",
        description="Subjects that users publish and hear.",
        schema_version="3.0.0",
    )
    return FastStream(broker, specification=specification)


if __name__ == "__main__":
    sys.stdout.write(document())
