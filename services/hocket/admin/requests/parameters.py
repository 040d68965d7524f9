"""Path, query and header parameters, parsed as strictly as the OpenAPI document says.

The validation library is more lenient than a contract may be: it accepts `1_000`, ` 1` and `٣` as
numbers, `yes` as true, and `0` as 1 January 1970. Each type here accepts exactly one form.
"""

import re
from datetime import date
from typing import Annotated, Any

from fastapi import Header
from pydantic import BeforeValidator, Field

from hocket.schemas.moments import Moment
from hocket.schemas.rest import MAX_VERSION, Key

_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SWITCHES = {"true": True, "false": False}


def _whole(value: Any) -> Any:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("it is not a whole number in digits")
    return value


def _day(value: Any) -> Any:
    if isinstance(value, str) and not _DAY.fullmatch(value):
        raise ValueError("it is not a date such as 2026-12-31")
    return value


def _switch(value: Any) -> Any:
    if isinstance(value, str):
        if value not in _SWITCHES:
            raise ValueError("it is neither `true` nor `false`")
        return _SWITCHES[value]
    return value


__all__ = ["WHOLE", "Day", "IdempotencyKey", "Moment", "Switch", "VersionNumber"]
WHOLE = BeforeValidator(_whole)
"""Use it with `int`, after the bounds."""
VersionNumber = Annotated[int, Field(ge=1, le=MAX_VERSION), WHOLE]
IdempotencyKey = Annotated[
    Key | None,
    Header(
        description="The same as `idempotency_key` in the body; if both are sent, they must agree."
    ),
]
Day = Annotated[date, BeforeValidator(_day)]
Switch = Annotated[bool, BeforeValidator(_switch)]
