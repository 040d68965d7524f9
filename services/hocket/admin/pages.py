"""Keyset pages: a cursor names the last row of a page by its time and its id.

The time is in whole microseconds, the precision of Postgres, so that no row is repeated or skipped.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import Field

from hocket.admin.requests.parameters import WHOLE
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import DEFAULT_PAGE, MAX_PAGE

CURSOR = r"^([0-9]{1,17}):([^\x00-\x1f\x7f]+)$"
MAX_CALL_CHARS = MAX_STEP_CHARS + 200
"""The length of a call's id: a step's key, and what stands before and after it."""
MAX_CURSOR_CHARS = MAX_CALL_CHARS + 18
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_FUTURE = datetime(9000, 1, 1, tzinfo=UTC)

Limit = Annotated[
    Annotated[int, Field(ge=1, le=MAX_PAGE), WHOLE],
    Query(description="Maximum number of rows per page."),
]
After = Annotated[
    str | None,
    Query(
        max_length=MAX_CURSOR_CHARS,
        pattern=CURSOR,
        description="Cursor: `next` of the previous page.",
    ),
]

__all__ = ["DEFAULT_PAGE", "EPOCH", "After", "Limit", "cursor", "in_range", "parse_cursor"]


def cursor(time: datetime, identifier: str) -> str:
    """Return the cursor of the row with this time and id."""
    micros = max((time - EPOCH) // timedelta(microseconds=1), 0)
    return f"{micros}:{identifier}"


def parse_cursor(text: str) -> tuple[datetime, str]:
    """Return time and id of a cursor, or raise InvalidInput."""
    found = re.fullmatch(CURSOR, text, re.ASCII)
    if found is None:
        raise InvalidInput(
            field="after", reason="it is not a cursor", cure="Pass `next` of the previous page."
        )
    return EPOCH + timedelta(microseconds=int(found[1])), found[2]


def in_range(moment: datetime) -> datetime:
    """Clamp a moment to the range that every component can represent; no row lies outside it."""
    return min(max(moment, EPOCH), FAR_FUTURE)
