"""Flow control by key: which limits hold runs back, who holds places, and who waits in which order."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hocket.schemas.pipeline.flow.spec import FlowKind
from hocket.schemas.rest import Reply

FlowState = Literal["waiting", "held", "refused"]


class FlowQueue(Reply):
    """The runs of one pipeline that have one key at one limit, as far as they have not ended. `queue`
    names it in `GET /v1/flow/runs`. `key` is empty where all runs share the limit, and null where it is
    withheld, from API keys without `content.read`."""

    queue: str
    pipeline: str
    kind: FlowKind
    key: str | None
    rule: Annotated[
        dict[str, Any], Field(description="What the limit says: that of the newest run.")
    ]
    held: Annotated[int, Field(description="Runs that passed it and have not ended.")]
    waiting: int
    started: Annotated[int, Field(description="Starts that its period still counts (rates).")]
    waiting_since: datetime | None


class FlowQueueList(Reply):
    """Queues, those in which most wait first; with a cursor for the rest."""

    queues: tuple[FlowQueue, ...]
    next: str | None = None


class FlowRun(Reply):
    """A run at a limit: it waits at `position` (from 1), holds a place, or was refused and ends in a
    moment. `replaced_by`: the run for which it is cancelled."""

    queue: str
    run_id: str
    pipeline: str
    kind: FlowKind
    key: str | None
    state: FlowState
    position: int | None
    accepted_at: datetime
    since: Annotated[datetime, Field(description="When it came into this state.")]
    replaced_by: str | None


class FlowRunList(Reply):
    """Runs at limits, the holders first, then those that wait, in their order; with a cursor."""

    runs: tuple[FlowRun, ...]
    next: str | None = None
