"""Parameters that select runs."""

from decimal import Decimal
from typing import Annotated, Literal

from fastapi import Depends, Query

from hocket.admin.pages import in_range
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import Moment, Switch
from hocket.admin.runs.reads import RunFilter
from hocket.schemas.access.roles import Permission
from hocket.schemas.labels import MAX_LABELS_HEADER_CHARS, header_pattern, read_labels
from hocket.schemas.rest import Token

Status = Literal[
    "running", "succeeded", "degraded", "failed", "cancelled", "expired", "rejected"
]  # fmt: skip
LabelsText = Annotated[
    str | None,
    Query(
        max_length=MAX_LABELS_HEADER_CHARS,
        json_schema_extra={"pattern": header_pattern()},
        description="Only runs with all of these labels: `customer=acme,team=search`, values "
        "percent-encoded.",
    ),
]

ErrorCode = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=100,
        pattern=r"^[\x21-\x7e]+$",
        description="Only runs that ended with this error code, such as `timeout`.",
    ),
]
Contains = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="Only runs with this text in their input, output or error; requires `content.read`.",
    ),
]

DeadlineMissed = Annotated[
    Switch,
    Query(
        description="`true`: only runs that returned no result by their deadline, or are past it; "
        "not those that were cancelled before."
    ),
]
MinCostUsd = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$",
        description="Only runs that cost at least this many US dollars, such as `0.05`.",
    ),
]


def labels_of(text: str | None) -> dict[str, str]:
    """Parse the labels of a parameter; raise InvalidInput."""
    return {} if text is None else read_labels(text, "labels")


def wanted_runs(
    caller: CallerDep,
    pipeline: Annotated[Token | None, Query()] = None,
    status: Annotated[Status | None, Query()] = None,
    since: Annotated[
        Moment | None,
        Query(description="Only runs accepted at or after this time: RFC 3339 with a time zone."),
    ] = None,
    until: Annotated[
        Moment | None,
        Query(description="Only runs accepted before this time; format as for `since`."),
    ] = None,
    labels: LabelsText = None,
    error_code: ErrorCode = None,
    deadline_missed: DeadlineMissed = False,
    min_cost_usd: MinCostUsd = None,
    contains: Contains = None,
) -> RunFilter:
    """Return the filter that the parameters describe, or raise InvalidInput. Callers who may not see
    content may not search it either."""
    if contains is not None:
        caller.bearer.check(Permission.CONTENT_READ)
    return RunFilter(
        pipeline=pipeline,
        status=status,
        since=in_range(since) if since else None,
        until=in_range(until) if until else None,
        labels=labels_of(labels),
        error_code=error_code,
        missed=deadline_missed,
        min_cost_usd=None if min_cost_usd is None else Decimal(min_cost_usd),
        contains=contains,
    )


WantedRuns = Annotated[RunFilter, Depends(wanted_runs)]
