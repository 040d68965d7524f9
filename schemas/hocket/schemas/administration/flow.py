"""Flow control by key: which limits hold runs back, which runs hold places, and which wait, in order."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hocket.schemas.pipeline.flow.spec import FlowKind
from hocket.schemas.rest import Reply

FlowState = Literal["waiting", "held", "refused"]


class FlowQueue(Reply):
    """The runs of one pipeline that share a key at one limit and have not ended. `queue` identifies
    it in `GET /v1/flow/runs`. `key` is empty if all runs share the limit, and null if it is withheld
    because the API key lacks `content.read`."""

    queue: str
    pipeline: str
    kind: FlowKind
    key: str | None
    rule: Annotated[dict[str, Any], Field(description="The limit's rule, as of the newest run.")]
    held: Annotated[int, Field(description="Runs that passed the limit and have not ended.")]
    waiting: int
    started: Annotated[
        int, Field(description="Starts that still count in the current period (rate limits).")
    ]
    waiting_since: datetime | None


class FlowQueueList(Reply):
    """A page of queues, those with the most waiting runs first."""

    queues: tuple[FlowQueue, ...]
    next: str | None = None


class FlowRun(Reply):
    """A run at a limit: it waits at `position` (starting at 1), holds a slot, or was refused and is
    about to end. `replaced_by`: the run in whose favor it is cancelled."""

    queue: str
    run_id: str
    pipeline: str
    kind: FlowKind
    key: str | None
    state: FlowState
    position: int | None
    accepted_at: datetime
    since: Annotated[datetime, Field(description="When it entered this state.")]
    replaced_by: str | None


class FlowRunList(Reply):
    """A page of runs at limits: first the holders, then the waiting runs in their order."""

    runs: tuple[FlowRun, ...]
    next: str | None = None
