"""Keyset pages: a cursor names the last row of a page by its time and its id.

The time is carried in whole microseconds, which is what Postgres keeps, so that no row is shown
twice or passed over.
"""

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import DEFAULT_PAGE, MAX_PAGE

MAX_CURSOR_CHARS = 2_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_FUTURE = datetime(9000, 1, 1, tzinfo=UTC)

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows per page.")]
After = Annotated[
    str | None,
    Query(max_length=MAX_CURSOR_CHARS, description="`next` of the page before."),
]

__all__ = ["DEFAULT_PAGE", "EPOCH", "After", "Limit", "cursor", "in_range", "parse_cursor"]


def cursor(time: datetime, identifier: str) -> str:
    """Return the cursor of the row with this time and id."""
    micros = (time - EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{micros}:{identifier}".encode()).decode().rstrip("=")


def parse_cursor(text: str) -> tuple[datetime, str]:
    """Return time and id of a cursor, or raise InvalidInput."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        micros, _, identifier = raw.decode().partition(":")
        time = EPOCH + timedelta(microseconds=int(micros))
        if "\x00" in identifier:
            raise ValueError("U+0000")
    except (ValueError, OverflowError, binascii.Error):
        raise InvalidInput(
            field="after", reason="it is not a cursor", cure="Pass `next` of the page before."
        ) from None
    return time, identifier


def in_range(moment: datetime) -> datetime:
    """Return a moment that every station can carry; rows are neither before nor after those."""
    return min(max(moment, EPOCH), FAR_FUTURE)
