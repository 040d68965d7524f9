"""JSON that Postgres accepts, of values that others chose. Pure."""

import json
import re
from typing import Any

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def json_text(value: Any) -> str:
    """Return a value as JSON in which U+0000 and halves of surrogate pairs, which Postgres cannot store,
    are U+FFFD. Raises ValueError for numbers that JSON does not have."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if "\\u0000" in text:
        text = _NUL.sub("\\1\ufffd", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
