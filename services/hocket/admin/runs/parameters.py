"""Parameters by which runs are chosen."""

from typing import Annotated, Literal

from fastapi import Query

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


def labels_of(text: str | None) -> dict[str, str]:
    """Return the labels that a parameter names; raise InvalidInput."""
    return {} if text is None else read_labels(text, "labels")
