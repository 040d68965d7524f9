"""What a step gives back, as the bytes of a message that every later station can carry. Pure.

Pydantic models, dates, decimals, sets and tuples become JSON. NaN and the infinities become null, the
character U+0000 and halves of surrogate pairs become U+FFFD: Postgres refuses them, and text taken
from PDFs or from models holds them now and then. What is no JSON at all, nests too deep or has
integers too long is a typed error.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.plain_json import MAX_DEPTH, MAX_INTEGER_DIGITS
from hocket.workers.errors import OutputNotJson, OutputTooLarge

MAX_RESULT_BYTES = 512 * 1024
"""A result's message; larger ones need a blob store."""
MAX_ERROR_TEXT_CHARS = 2_000
REPLACEMENT = "\ufffd"


def encode(finished: AttemptFinished) -> bytes:
    """Return the message of a result; raise OutputNotJson where its output cannot be one."""
    try:
        payload = _to_json(finished)
    except PydanticSerializationError:
        return _to_json(_repaired(finished))
    if _is_suspicious(payload):
        return _to_json(_repaired(finished))
    return payload


def check_size(payload: bytes, limit_bytes: int = MAX_RESULT_BYTES) -> None:
    """Raise OutputTooLarge where the message is over the limit."""
    if len(payload) > limit_bytes:
        raise OutputTooLarge(size_bytes=len(payload), limit_bytes=limit_bytes)


def shortened(error: ErrorInfo) -> ErrorInfo:
    """Return an error whose message fits: without its details, its texts cut."""
    return error.model_copy(
        update={"message": error.message[:MAX_ERROR_TEXT_CHARS], "details": {"cut": True}}
    )


def plain(value: Any, field: str = "output", depth: int = 0) -> Any:
    """Return the value as JSON that can be carried; raise OutputNotJson naming the place."""
    if isinstance(value, str):
        return _whole_text(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= _INTEGER_LIMIT:
            raise _not_json(field, f"an integer has more than {MAX_INTEGER_DIGITS} digits")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, BaseModel):
        return plain(value.model_dump(), field, depth)
    if depth >= MAX_DEPTH:
        raise _not_json(field, f"it nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {
            _whole_text(str(key)): plain(item, f"{field}.{key}"[:200], depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [
            plain(item, f"{field}.{index}"[:200], depth + 1) for index, item in enumerate(value)
        ]
    return _converted(value, field, depth)


_to_json = AttemptFinished.__pydantic_serializer__.to_json
_INTEGER_LIMIT = 10**MAX_INTEGER_DIGITS


def _is_suspicious(payload: bytes) -> bool:
    """Tell whether the bytes could hold what must be repaired or refused; cheap, may say yes in vain.

    A result needs as many brackets as it is deep, and as many bytes as an integer has digits.
    """
    return (
        b"\\u0000" in payload
        or payload.count(b"{") + payload.count(b"[") > MAX_DEPTH
        or len(payload) > MAX_INTEGER_DIGITS
    )


def _repaired(finished: AttemptFinished) -> AttemptFinished:
    changes: dict[str, Any] = {"output": plain(finished.output)}
    if finished.error is not None:
        changes["error"] = ErrorInfo.model_validate(plain(finished.error, "error"))
    return finished.model_copy(update=changes)


def _whole_text(text: str) -> str:
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def _converted(value: Any, field: str, depth: int) -> Any:
    try:
        converted = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise _not_json(field, str(error)) from None
    if type(converted) is type(value):
        raise _not_json(field, f"a {type(value).__name__} is not JSON")
    return plain(converted, field, depth)


def _not_json(field: str, reason: str) -> OutputNotJson:
    return OutputNotJson(field=_whole_text(field), reason=f"at `{_whole_text(field)}`, {reason}")
