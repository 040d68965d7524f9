"""The facts of `hocket.schemas.run_changes` as structs: written for every commit, read by REST."""

import msgspec
from msgspec import Raw

from hocket.schemas.structs.fields import Int32, Labels, Milliseconds, Moment, Name, StepKey

NULL = Raw(b"null")


class StepState(msgspec.Struct, omit_defaults=True):
    """A step as a commit left it."""

    step: StepKey
    node: StepKey
    type: Name
    role: Name
    state: Name
    attempt: Int32
    ready_at_ms: Moment
    parent: StepKey = ""
    dispatched_at_ms: Moment | None = None
    started_at_ms: Moment | None = None
    finished_at_ms: Moment | None = None
    deadline_at_ms: Moment | None = None
    slack_ms: Milliseconds | None = None
    worker: Name | None = None
    error: Raw = NULL
    source: Raw = NULL


class RunChange(msgspec.Struct, omit_defaults=True):
    """What a commit changed of a run."""

    run_id: Name
    partition: Int32
    log_seq: int
    version: Int32
    status: Name
    priority: Name
    accepted_at_ms: Moment
    deadline_at_ms: Moment
    finished_at_ms: Moment | None = None
    is_new: bool = False
    labels: Labels | None = None
    steps: list[StepState] = msgspec.field(default_factory=list)


class RunsChanged(msgspec.Struct):
    """What a commit changed of the runs of a pipeline."""

    tenant: Name
    pipeline: Name
    runs: list[RunChange]


write = msgspec.json.Encoder().encode
read = msgspec.json.Decoder(RunsChanged).decode
