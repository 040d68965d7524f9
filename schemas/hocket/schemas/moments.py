"""Moments as requests give them: RFC 3339 with a zone, and nothing else that libraries would accept
(`0`, `2026-01-01`)."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[-+][0-9]{2}:[0-9]{2})",
    re.ASCII,
)

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def _read(value: Any) -> Any:
    if isinstance(value, str) and _FORM.fullmatch(value):
        return value
    raise ValueError("it is not a time with a zone, as in 2026-12-31T23:59:59Z")


def _in_utc(value: datetime) -> datetime:
    """Return a moment in UTC; one that its zone puts out of range becomes the first or the last one."""
    try:
        value.astimezone(UTC)
    except OverflowError:
        return _FIRST if value.year == _FIRST.year else _LAST
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_read), AfterValidator(_in_utc)]
