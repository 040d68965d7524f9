"""What is sent to clients that follow runs live."""

from datetime import datetime

from pydantic import Field

from hocket.schemas.messages import Priority
from hocket.schemas.rest import Reply


class RunNotice(Reply):
    """A run was accepted, was refused, or has ended. `finished_at` is missing while it is in
    progress."""

    run_id: str
    pipeline: str
    version: int
    status: str
    priority: Priority | None = Field(None, alias="class")
    """Missing if the run has ended."""
    accepted_at: datetime
    deadline_at: datetime
    finished_at: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class LiveEnd(Reply):
    """Why a stream ends, or resumes after a gap; `cure` says what to do."""

    reason: str
    cure: str
