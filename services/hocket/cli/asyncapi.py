"""The AsyncAPI document of every public subject, made by FastStream from the messages themselves.

`python -m hocket.cli.asyncapi` prints it; `docs/reference/asyncapi.yaml` holds it. The application
declared here is only a description and never runs: the hot paths use NATS directly
(docs/decisions/0002-faststream.md).
"""

import re
import sys
from importlib.metadata import version
from typing import Any

import yaml
from faststream import FastStream
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from pydantic import RootModel

from hocket.kit.nats import cloudevents
from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished, StepChanged, TaskRejected, UsageRecord
from hocket.schemas.run_changes import RunsChanged

PARAMETERS = {
    "tenant": "Tenant of the run: 1 to 63 letters, digits, `-` or `_`.",
    "pipeline": "Name of an applied pipeline.",
    "reply_to": "The inbox named by the task in Hocket-Reply-To.",
}
HEADERS = {
    cloudevents.IDEMPOTENCY_KEY: "The same key always means the same run.",
    cloudevents.DEADLINE_MS: "The run's deadline, in milliseconds from its acceptance.",
    cloudevents.DEADLINE: "The run's deadline, as an RFC 3339 timestamp.",
    cloudevents.PRIORITY: "interactive, standard or batch.",
    cloudevents.BUDGET_USD: "Budget of the run, in US dollars.",
    cloudevents.VERSION: "Version of the pipeline to run instead of the active one.",
    cloudevents.LABELS: "What the task is charged to: `customer=acme,team=search`, percent-encoded.",
    cloudevents.REPLY_TO: "Subject that receives the run's end or the task's refusal.",
    cloudevents.PROGRESS: "1: the reply subject also receives every change of a step.",
    cloudevents.TRACEPARENT: "W3C trace context.",
    "ce-id": "CloudEvents; together with ce-source, the idempotency key if no other is given.",
    "ce-source": "CloudEvents.",
}
"""The headers of a task that intake reads; all are optional."""


class Task(RootModel[dict[str, Any]]):
    """The input of a pipeline: a JSON object that satisfies its input schema."""


def document() -> str:
    """Return the AsyncAPI document as YAML."""
    described: dict[str, Any] = yaml.safe_load(_application().schema.to_specification().to_yaml())
    for channel in described["channels"].values():
        _describe_parameters(channel)
    for name, message in described["components"]["messages"].items():
        del message["correlationId"]  # FastStream's own header, never sent here
        if name.startswith("Task:"):
            message["headers"] = _headers()
    in_order(described)
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True, width=100)


def in_order(described: dict[str, Any]) -> None:
    """Sort named objects by name: FastStream keeps publishers in a set, whose order varies."""
    components = described["components"]
    for holder, names in ((described, ("channels", "operations")), (components, tuple(components))):
        for name in names:
            holder[name] = dict(sorted(holder[name].items()))


def _application() -> FastStream:
    broker = NatsBroker()

    @broker.subscriber(subjects.task("{tenant}", "{pipeline}"), title="Task")
    async def task(body: Task) -> None:
        """A task starts a run; the stream TASKS keeps it until its run is committed."""

    for kind, model, text in (
        (
            RunFinished.kind,
            RunFinished,
            (
                "A run ended and is stored in Postgres. Its end is in the stream EVENTS once (except "
                "if NATS was unavailable for over five minutes before acknowledging it), always with "
                "the same `ce-id`. NATS delivers at least once: if acting twice does harm, keep "
                "track of the IDs that you have acted on."
            ),
        ),
        (TaskRejected.kind, TaskRejected, "A task was refused at intake."),
        (
            RunsChanged.kind,
            RunsChanged,
            (
                "The changes that a commit made to runs and their steps, without inputs and outputs, "
                "for live display. Unlike a run's end, they are sent once and not repeated."
            ),
        ),
    ):
        subject = subjects.event("{tenant}", "{pipeline}", kind)
        broker.publisher(subject, title=model.__name__, description=text, schema=model)
    broker.publisher(
        "{reply_to}",
        title="Reply",
        description="A run's end or a task's refusal and, with Hocket-Progress, every step's changes.",
        schema=StepChanged | RunFinished | TaskRejected,
    )
    broker.publisher(
        subjects.USAGE_SUBJECT,
        title="UsageRecord",
        description="Usage and cost of one model call; a message may hold several, one per line.",
        schema=UsageRecord,
    )
    specification = AsyncAPI(
        title="Hocket",
        version=version("hocket"),
        description="Subjects that users publish to and subscribe to.",
        schema_version="3.0.0",
    )
    return FastStream(broker, specification=specification)


def _describe_parameters(channel: dict[str, Any]) -> None:
    """Describe each `{name}` parameter of an address, as AsyncAPI 3 requires; FastStream does not."""
    if names := re.findall(r"\{(\w+)\}", channel["address"]):
        channel["parameters"] = {name: {"description": PARAMETERS[name]} for name in names}


def _headers() -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in HEADERS.items()}
    return {"type": "object", "properties": properties}


if __name__ == "__main__":
    sys.stdout.write(document())
