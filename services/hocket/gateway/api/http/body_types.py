"""Types common to the request bodies of the HTTP door: names, counts, and their bounds."""

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from hocket.schemas.errors import ErrorClass, HocketError

MAX_MODEL_CHARS = 200
MAX_CHOICES = 128
MAX_MESSAGES = 100_000
MAX_TEXTS = 2_048
MAX_TOOLS = 1_024

Model = Annotated[
    str, Field(min_length=1, max_length=MAX_MODEL_CHARS, pattern=r"^[^\x00-\x1f\x7f]*$")
]


def whole(value: Any) -> Any:
    """Return 5 for 5.0, which is the same integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(whole)]
Least = Annotated[int, Field(ge=0, le=1_000_000_000), BeforeValidator(whole)]
PlainToken = Annotated[int, Field(ge=0)]
"""A token's id as callers send it; tried first, because a body can have millions of them, and checking
for 5.0 doubles the time."""
Token = Annotated[int, Field(ge=0), BeforeValidator(whole)]
JsonObject = dict[str, Any]
_Item = TypeVar("_Item")


def _unchanged(value: Any) -> Any:
    """Return a value as it is. Python calls it, and lets other threads run at that moment."""
    return value


Apart = Annotated[_Item, BeforeValidator(_unchanged)]
"""An item of a list that may be long: pydantic alone would validate all items without a pause, even in a
thread, and nothing else would run for seconds."""
Listed = Annotated[list[_Item], Field(fail_fast=True)]
"""A list that is checked up to its first fault: a body can have a million, each of a kilobyte."""


class BodyInvalid(HocketError):
    """`{field}` is not valid: {reason}."""

    code = "invalid_request"
    error_class = ErrorClass.INVALID
