"""Parameters by which runs are chosen."""

from decimal import Decimal
from typing import Annotated, Literal

from fastapi import Query

from hocket.admin.requests.parameters import Switch
from hocket.schemas.labels import HEADER_PATTERN, MAX_LABELS_HEADER_CHARS, read_labels

Status = Literal[
    "running", "succeeded", "degraded", "failed", "cancelled", "expired", "rejected"
]  # fmt: skip
LabelsText = Annotated[
    str | None,
    Query(
        max_length=MAX_LABELS_HEADER_CHARS,
        pattern=HEADER_PATTERN,
        description="`customer=acme,team=search`, values percent-encoded: runs that have all.",
    ),
]

ErrorCode = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=100,
        pattern=r"^[\x21-\x7e]+$",
        description="Runs that ended with this error, such as `timeout`.",
    ),
]
Contains = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="Text in the input, the output or the error; needs `content.read`.",
    ),
]

DeadlineMissed = Annotated[
    Switch,
    Query(description="`true`: runs that gave no result by their deadline, or are beyond it."),
]
MinCostUsd = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$",
        description="Runs that spent so many dollars or more, such as `0.05`.",
    ),
]


def dollars_of(text: str | None) -> Decimal | None:
    """Return the amount that a parameter names."""
    return None if text is None else Decimal(text)


def labels_of(text: str | None) -> dict[str, str]:
    """Return the labels that a parameter names; raise InvalidInput."""
    return {} if text is None else read_labels(text, "labels")
