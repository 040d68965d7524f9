"""Field types of structs, with the bounds of `hocket.schemas.checks.bounded`, as msgspec checks them.

A struct is a second, faster reader of a message of the contract (`hocket.schemas.messages`). It accepts
only what the contract accepts, and gives the same values. Messages that it refuses are read again by the
contract, which decides, and whose errors are reported. So a struct may be stricter than the contract: it
refuses unknown fields, text in place of numbers, and amounts that are not plain digits.
"""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from hocket.schemas import labels
from hocket.schemas.checks import bounded

Name = Annotated[str, Meta(max_length=bounded.MAX_NAME_CHARS)]
StepKey = Annotated[str, Meta(max_length=bounded.MAX_STEP_CHARS)]
Int32 = Annotated[int, Meta(ge=0, le=bounded.MAX_INT32)]
Count = Annotated[int, Meta(ge=0, le=bounded.MAX_COUNT)]
Milliseconds = Annotated[float, Meta(ge=-bounded.MAX_MILLISECONDS, le=bounded.MAX_MILLISECONDS)]
Moment = Annotated[float, Meta(ge=bounded.MIN_MOMENT_MS, le=bounded.MAX_MOMENT_MS)]
_KEY_PATTERN, _VALUE_PATTERN = [
    pattern.removesuffix("$") + r"\Z" for pattern in (labels.KEY_PATTERN, labels.VALUE_PATTERN)
]
"""As the contract has them; here, `$` would also match before a line end."""
Labels = Annotated[
    dict[
        Annotated[str, Meta(max_length=labels.MAX_LABEL_KEY_CHARS, pattern=_KEY_PATTERN)],
        Annotated[str, Meta(max_length=labels.MAX_LABEL_VALUE_CHARS, pattern=_VALUE_PATTERN)],
    ],
    Meta(max_length=labels.MAX_LABELS),
]
Amount = Annotated[str, Meta(max_length=bounded.MAX_USD_PLACES)]
"""US dollars as the message has them; see `is_amount`."""

NOT_READ = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises if it does not accept a message."""
MAX_BRACKETS = 200
"""The contract reads 201 levels; a message with no more brackets than this is not deeper."""

_BRACKET, _BACKSLASH, _DELETE = b"[\\\x7f"
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")


def is_shallow(body: bytes) -> bool:
    """Tell whether a well-formed message surely does not nest too deep for the contract."""
    brackets = body.count(b"{")
    if _BRACKET in body:  # to find one byte is faster than to count
        brackets += body.count(b"[")
    return brackets <= MAX_BRACKETS


def is_printable(body: bytes) -> bool:
    """Tell whether a well-formed message surely has no control characters in its texts, not even
    escaped ones. Single bytes are found much faster than texts are looked through."""
    return body.isascii() and _BACKSLASH not in body and _DELETE not in body


def are_names(*texts: str) -> bool:
    """Tell whether texts are surely free of control characters, as names and keys must be."""
    return "".join(texts).isprintable()


def is_amount(text: str | None) -> bool:
    """Tell whether a text is surely an amount that the contract accepts."""
    return text is None or _AMOUNT.fullmatch(text) is not None
