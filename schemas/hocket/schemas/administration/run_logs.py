"""Log lines of the handlers of a run's steps, as people read them."""

from datetime import datetime
from typing import Any

from hocket.schemas.rest import Reply
from hocket.schemas.tracing.log_lines import Level


class RunLine(Reply):
    """A line logged by a handler. Without `content.read`, its text and fields are omitted."""

    at: datetime
    step: str
    attempt: int
    delivery: int
    """How many times the attempt had been delivered to a worker by then."""
    level: Level
    text: str | None
    fields: dict[str, Any] | None
    worker: str


class RunLogs(Reply):
    """Lines of a run, oldest first. `withheld`: texts and fields are not shown to this caller."""

    run_id: str
    lines: tuple[RunLine, ...]
    next: str | None = None
    withheld: bool = False
