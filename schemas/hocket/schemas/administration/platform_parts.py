"""The parts of the platform: tenants, workers, queues of steps, partitions."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from hocket.schemas.rest import Reply, Request, Text
from hocket.schemas.subjects import DEFAULT_QUEUE, QUEUE

MAX_DRAIN_S = 7 * 86_400.0
QueueName = Annotated[str, Field(pattern=f"^{QUEUE.pattern}$")]


class Tenant(Reply):
    """A tenant, identified by its name."""

    tenant: str


class TenantList(Reply):
    """The tenants that have runs, pipelines or keys; `next` is the `after` of the next page."""

    tenants: tuple[Tenant, ...]
    next: str | None = None


class WorkerPool(Reply):
    """A type and queue whose steps a worker takes, and how many it runs at once."""

    type: str
    queue: str
    slots: int


class Worker(Reply):
    """A worker that announced itself within the last seconds."""

    worker: str
    pools: tuple[WorkerPool, ...]


class WorkerList(Reply):
    """Live workers, by name; `next` is the `after` of the next page."""

    workers: tuple[Worker, ...]
    next: str | None = None


class Queue(Reply):
    """The steps of a type in a queue and a lane. `waiting` steps are stored and not yet dispatched,
    `handed_out` are at workers; `asking` is the number of open requests from workers for more. If no
    worker has announced the type, its name has `-` in place of `.`."""

    type: str
    queue: str
    lane: str
    waiting: int
    handed_out: int
    redelivered: int
    asking: int
    drained_for_s: float | None = None
    """For how many more seconds no steps are dispatched, if the queue is drained."""


class QueueChange(Request):
    """A queue of a node type."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "default"}]})

    queue: QueueName = DEFAULT_QUEUE


class QueueDrain(QueueChange):
    """Which queue of a node type to drain, for how long, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"for_s": 3600, "reason": "new driver"}]}
    )

    for_s: float = Field(3_600, gt=0, le=MAX_DRAIN_S, strict=True)
    reason: Text = ""


class QueueList(Reply):
    """Queues by type, queue and lane, for all tenants together."""

    queues: tuple[Queue, ...]


class Partition(Reply):
    """A share of the runs: which coordinator owns it, since which epoch, and how far its log is
    applied."""

    partition: int
    owner: str
    epoch: int
    applied_seq: int
    open_runs: int
    updated_at: datetime


class PartitionList(Reply):
    """Partitions by number."""

    partitions: tuple[Partition, ...]
