"""Moments as they are written in requests: RFC 3339 with a zone, and nothing else that libraries take
for one (`0`, `2026-01-01`)."""

import re
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator

_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[-+][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def _read(value: Any) -> Any:
    if isinstance(value, str) and _FORM.fullmatch(value):
        return value
    raise ValueError("it is not a time with a zone, as in 2026-12-31T23:59:59Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_read)]
