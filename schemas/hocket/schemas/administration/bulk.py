"""Many runs at once: submitted by one request, cancelled or retried by an operation that goes on by
itself."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PlainSerializer, StrictBool

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.labels import Labels
from hocket.schemas.moments import Moment
from hocket.schemas.rest import BudgetUsd, Key, Reply, Request, RunSubmission, Text, Token

MAX_TASKS = 1_000
"""Tasks of one request."""
MAX_BULK_RUNS = 1_000_000
"""Runs that one operation may change."""

Action = Literal["cancel", "retry"]
State = Literal["running", "done", "stopped"]


def _plain(amount: Decimal) -> str:
    """Return an amount without an exponent, as it is read again."""
    return format(amount, "f")


class BulkSubmission(Request):
    """Tasks, each taken or refused by itself. None waits for its run (`wait_ms`). Give each an
    `idempotency_key`, so that a request whose answer was lost can be sent again."""

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
    """What became of one task: a run, or why there is none."""

    run_id: str | None = None
    known: bool = False
    """The key named a run that was there before."""
    error: ErrorInfo | None = None


class BulkReceipt(Reply):
    """What became of the tasks, in their order."""

    accepted: int
    refused: int
    runs: tuple[BulkTask, ...]


class BulkFilter(Request):
    """Which runs are meant: those that have all that is named. Without a status, those that the action
    can change."""

    pipeline: Token | None = None
    status: Literal["running", "degraded", "failed", "cancelled", "expired"] | None = None
    since: Moment | None = None
    """Accepted then or later."""
    until: Moment | None = None
    """Accepted before."""
    labels: Labels = Field(default_factory=dict)
    error_code: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[\x21-\x7e]+$")
    deadline_missed: StrictBool = False
    """Only runs that gave no result by their deadline, or are beyond it."""
    min_cost_usd: (
        Annotated[BudgetUsd, PlainSerializer(_plain, return_type=str, when_used="json")] | None
    ) = None
    """Runs that spent so many dollars or more."""


class BulkChange(Request):
    """What to do to which runs. `at_most`: nothing is done where more are meant. The same
    `idempotency_key` is the same operation: a request whose answer was lost can be sent again."""

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
    at_most: int = Field(MAX_BULK_RUNS, ge=1, le=MAX_BULK_RUNS)
    idempotency_key: Key | None = None


class BulkPreview(Reply):
    """How many runs are meant now."""

    action: Action
    matching: int


class BulkOperation(Reply):
    """An operation on many runs. `matching` is how many were meant when it was asked for; `changed` and
    `skipped` (they had ended, or could not be changed) how many were dealt with."""

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
    """Operations, the latest first; `next` as in RunList."""

    operations: tuple[BulkOperation, ...]
    next: str | None = None
