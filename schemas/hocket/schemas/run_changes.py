"""The public fact by which runs are followed live: what a commit changed of the runs of a pipeline.

It is told at most once, after its commit (a coordinator that is killed in between tells nothing), while
the end of a run is told at least once (`RunFinished`). `hocket.schemas.structs.run_changes` writes and
reads the same messages faster.
"""

from typing import Any, ClassVar

from hocket.schemas.checks.bounded import Int32, Milliseconds, Moment, Name, StepKey
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels
from hocket.schemas.messages import Message, Priority

KIND = "runs-changed"
MAX_FACT_BYTES = 128 * 1024
"""About how large one fact may be; what a commit changed beyond it is told by several."""
MAX_ERROR_CHARS = 8_192
"""The error of a step that is longer is left out of the fact; its run's steps have it."""


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
