"""The public fact for following runs live: what a commit changed in the runs of a pipeline.

It is published at most once, after its commit (a coordinator that is killed in between publishes
nothing), while the end of a run is published at least once (`RunFinished`).
`hocket.schemas.structs.run_changes` writes and reads the same messages faster.
"""

from typing import Any, ClassVar

from hocket.schemas.checks.bounded import Int32, Milliseconds, Moment, Name, StepKey
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels
from hocket.schemas.messages import Message, Priority

KIND = "runs-changed"
MAX_FACT_BYTES = 128 * 1024
"""The approximate size of one fact; larger changes of a commit are split into several."""
MAX_ERROR_CHARS = 8_192
"""A longer error of a step is left out of the fact; it is in the run's steps."""


class StepState(Message):
    """A step as a commit left it, without input and output."""

    step: StepKey
    node: StepKey
    type: Name
    role: Name
    parent: StepKey = ""
    state: Name
    attempt: Int32
    ready_at_ms: Moment
    dispatched_at_ms: Moment | None = None
    started_at_ms: Moment | None = None
    finished_at_ms: Moment | None = None
    deadline_at_ms: Moment | None = None
    slack_ms: Milliseconds | None = None
    worker: Name | None = None
    error: ErrorInfo | None = None
    source: dict[str, Any] | None = None


class RunChange(Message):
    """What a commit changed of a run. `log_seq` is how far the log of its partition was applied: rows
    with that offset, or a later one, hold the change. `is_new`: the run was accepted."""

    run_id: Name
    partition: Int32
    log_seq: int
    version: Int32
    status: Name
    priority: Priority
    accepted_at_ms: Moment
    deadline_at_ms: Moment
    finished_at_ms: Moment | None = None
    is_new: bool = False
    labels: Labels | None = None
    steps: tuple[StepState, ...] = ()


class RunsChanged(Message):
    """What a commit changed of the runs of a pipeline."""

    kind: ClassVar[str] = KIND

    tenant: Name
    pipeline: Name
    runs: tuple[RunChange, ...]
