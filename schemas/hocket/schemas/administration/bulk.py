"""Many runs at once: submitted by one request, or cancelled or retried by an operation that runs in the
background."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PlainSerializer, StrictBool

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels
from hocket.schemas.moments import Moment
from hocket.schemas.rest import NUMBER, BudgetUsd, Key, Reply, Request, RunSubmission, Text, Token

MAX_TASKS = 1_000
"""The most tasks in one request."""
MAX_BULK_RUNS = 1_000_000
"""The most runs that one operation may change."""

Action = Literal["cancel", "retry"]
State = Literal["running", "done", "stopped"]


def _plain(amount: Decimal) -> str:
    """Return an amount without an exponent, so that it can be read back."""
    return format(amount, "f")


class BulkSubmission(Request):
    """Tasks, each accepted or refused individually. None waits for its run (`wait_ms`). Give each
    task an `idempotency_key`, so that the request can be repeated safely if its response is lost."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "runs": [
                        {"pipeline": "report", "input": {"n": 1}, "idempotency_key": "report-1"},
                        {"pipeline": "report", "input": {"n": 2}, "idempotency_key": "report-2"},
                    ]
                }
            ]
        }
    )

    runs: tuple[RunSubmission, ...] = Field(min_length=1, max_length=MAX_TASKS)


class BulkTask(Reply):
    """The outcome of one task: a run, or the error."""

    run_id: str | None = None
    known: bool = False
    """Whether the key belongs to an existing run."""
    error: ErrorInfo | None = None


class BulkReceipt(Reply):
    """The outcome of the tasks, in their order."""

    accepted: int
    refused: int
    runs: tuple[BulkTask, ...]


class BulkFilter(Request):
    """Which runs to change: those that match all given fields. Without a status, those that the
    action can change. Retries leave out sub-runs and runs that have a retry already; cancellations
    leave out sub-runs unless `pipeline` is given."""

    pipeline: Token | None = None
    status: Literal["running", "degraded", "failed", "cancelled", "expired"] | None = None
    since: Moment | None = None
    """Accepted at or after this time."""
    until: Moment | None = None
    """Accepted before this time."""
    labels: Labels = Field(default_factory=dict)
    error_code: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[\x21-\x7e]+$")
    deadline_missed: StrictBool = False
    """Only runs that returned no result by their deadline, including runs past it, but not those that
    were cancelled before."""
    min_cost_usd: (
        Annotated[BudgetUsd, PlainSerializer(_plain, return_type=str, when_used="json")] | None
    ) = None
    """Only runs that cost at least this many US dollars."""


class BulkChange(Request):
    """What to change in which runs. If more than `at_most` runs match, nothing is done. The same
    `idempotency_key` always means the same operation, so a request can be repeated safely if its
    response is lost."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "action": "cancel",
                    "filter": {"pipeline": "report", "labels": {"customer": "acme"}},
                    "reason": "wrong input",
                    "at_most": 5000,
                    "idempotency_key": "wrong-input-of-acme",
                }
            ]
        }
    )

    action: Action
    filter: BulkFilter = Field(default_factory=BulkFilter)
    reason: Text = ""
    at_most: Annotated[int, Field(ge=1, le=MAX_BULK_RUNS), NUMBER] = MAX_BULK_RUNS
    idempotency_key: Key | None = None


class BulkPreview(Reply):
    """How many runs match now, without those that the action leaves out."""

    action: Action
    matching: int


class BulkOperation(Reply):
    """An operation on many runs. `matching` is how many runs matched when it was requested, or how
    many have been found if these are more; `changed` and `skipped` (could not be retried) are how many
    were processed."""

    operation_id: str
    action: Action
    state: State
    filter: BulkFilter
    reason: str
    matching: int
    changed: int
    skipped: int
    created_by: str
    created_at: datetime
    finished_at: datetime | None = None


class BulkOperationList(Reply):
    """Operations, newest first; `next` as in RunList."""

    operations: tuple[BulkOperation, ...]
    next: str | None = None
