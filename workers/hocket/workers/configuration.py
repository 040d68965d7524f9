"""The parts of the configuration file that workers read, checked. Pure.

```yaml
workers:    {ack_wait_s: 10, drain_s: 10}
node_types: {llm: {concurrency: 32}, python: {concurrency: 64, modules: [acme.steps]}}
blobs:      {store: file, max_mib: 65536}   # or postgres, shared by several machines; or none
databases:  {...}                # see hocket.workers.sql.targets
http_services: {...}             # see hocket.workers.http.services
nats_services: {...}             # see hocket.workers.nats.services
```
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hocket.kit.blob_limits import MAX_STORE_MIB
from hocket.schemas.checks.faults import faults_of, refusal
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.faults import meant_type
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.schemas.subjects import DEFAULT_QUEUE, QUEUE, type_of
from hocket.workers.runtime.execution.watchdog import BLOCKED_S
from hocket.workers.runtime.execution.worker import DRAIN_S, OVERRUN_S
from hocket.workers.runtime.transport.consumers import ACK_WAIT_S

CONCURRENCY: Mapping[str, int] = {
    "python": 64,
    "llm": 32,
    "agent": 32,
    "sql": 8,
    "retrieval": 16,
    "planning": 16,
    "http": 64,
    "mcp": 64,
    "nats": 64,
}
"""The steps of each node type that one worker process runs at once."""
MAX_CONCURRENCY = 4_096
MAX_QUEUES = 1_000
"""The most packages that may have a queue."""
MAX_DRAIN_S = 3_600.0
STOP_S = 15.0
"""The time that a worker needs besides its drain, to store results and close connections."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeType(_Section):
    """One entry of `node_types`."""

    concurrency: int | None = Field(None, ge=1, le=MAX_CONCURRENCY)
    modules: tuple[str, ...] = ()
    """For `python`: modules whose functions may run, with what is below them, and single functions
    (`module:function`), beside those that `HOCKET_HANDLERS` names."""
    queues: dict[str, str] = Field(default_factory=dict, max_length=MAX_QUEUES)
    """For `python`: by package the queue of nodes that name none. The REST API writes it into the
    versions that are applied."""


class Process(_Section):
    """The section `workers`."""

    ack_wait_s: float = Field(ACK_WAIT_S, ge=1, le=600)
    """A step of a dead worker goes to another one after so long."""
    drain_s: float = Field(DRAIN_S, ge=0, le=MAX_DRAIN_S)
    """What runs when the worker is told to stop may go on for so long; whoever stops it must wait for
    STOP_S more before it kills."""
    overrun_s: float = Field(OVERRUN_S, ge=0.1, le=3_600)
    """A worker starts anew when more than half of a type's slots have been held so long by functions
    that did not end in time."""
    blocked_s: float = Field(BLOCKED_S, ge=0, le=3_600)
    """A worker whose event loop stands still so long (an async function that computes) ends and is
    started anew; 0: never."""


class Blobs(_Section):
    """The section `blobs`: where large values are kept."""

    store: Literal["file", "postgres", "none"] = "file"
    folder: Path | None = None
    """For `file`; without it `blobs` in the data folder."""
    max_mib: int = Field(MAX_STORE_MIB, ge=1, le=2**30)
    """Of all blobs; one tenant has at most half. Beyond it steps fail whose outputs need one."""


class Configuration(_Section):
    """What a worker process takes from the file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    workers: Process = Process()
    node_types: dict[str, NodeType] = Field(default_factory=dict)
    blobs: Blobs = Blobs()
    databases: dict[str, Any] = Field(default_factory=dict)
    http_services: dict[str, Any] = Field(default_factory=dict)
    mcp_servers: dict[str, Any] = Field(default_factory=dict)
    nats_services: dict[str, Any] = Field(default_factory=dict)

    def slots(self, pools: Sequence[str]) -> dict[str, int]:
        """Return how many steps of each pool (`python`, `python@gpu`) run at once."""
        types = {pool: type_of(pool) for pool in pools}
        return {
            pool: self._type(name).concurrency or CONCURRENCY[name] for pool, name in types.items()
        }

    def _type(self, name: str) -> NodeType:
        return self.node_types.get(name, NodeType())


def parse(sections: Mapping[str, Any]) -> Configuration:
    """Return the configuration, or raise InvalidInput naming each field that is wrong."""
    try:
        configuration = Configuration.model_validate(
            {name: value for name, value in sections.items() if value is not None}
        )
    except ValidationError as error:
        raise refusal(InvalidInput, faults_of(error, field_of=_field_of)) from None
    for name in configuration.node_types:
        check_type(name, "node_types")
    return configuration


def _field_of(place: tuple[int | str, ...]) -> str:
    return ".".join(shown_text(str(part)) for part in place)


def parse_types(text: str) -> tuple[str, ...]:
    """Return the node types in a comma-separated list, each optionally followed by `@` and a queue; all
    types for an empty list. Raises InvalidInput for an unknown type."""
    pools = [name.strip().removesuffix(f"@{DEFAULT_QUEUE}") for name in text.split(",")]
    for name in filter(None, pools):
        node_type, at, queue = name.partition("@")
        check_type(node_type, "types")
        if at and not QUEUE.fullmatch(queue):
            raise InvalidInput(
                field="types",
                reason=f"`{shown_text(queue)}` is not a queue",
                cure="Write `python@gpu`: a lower-case letter followed by lower-case letters, digits "
                "and `_`, at most 31 in all.",
            )
    return tuple(dict.fromkeys(filter(None, pools))) or WORKER_TYPES


def parse_drain(text: str) -> float:
    """Return the seconds of `--drain-s`, or raise InvalidInput."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_DRAIN_S:
        raise InvalidInput(
            field="drain-s",
            reason=f"`{shown_text(text)}` is not a number of seconds from 0 to {MAX_DRAIN_S:g}",
            cure="Allow for the longest attempt of its steps, and give whatever stops the worker at "
            "least as much time.",
        )
    return seconds


def check_type(name: str, field: str) -> None:
    """Raise InvalidInput if workers have no such node type."""
    if name not in WORKER_TYPES:
        raise InvalidInput(
            field=f"{field}.{shown_text(name)}",
            reason="it is not a node type of workers",
            cure=f"{meant_type(name, WORKER_TYPES)}Use one of: {', '.join(WORKER_TYPES)}.",
        )
