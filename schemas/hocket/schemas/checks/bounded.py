"""Field types of messages whose values Postgres, NATS and JSON can all carry.

Messages from outside are parsed with these types, so that a number that overflows, a character that
cannot be stored or a name of six thousand characters is refused on entry, with an error that names the
field. The bounds fit the columns and indexes of the schema `hocket`; docs/reference/limits.md lists
them.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

MAX_NAME_CHARS = 256
MAX_STEP_CHARS = 2_400
"""A step's key must fit into one index entry (2,704 bytes) together with its run's id."""
MAX_KEY_CHARS = 1_100
"""An idempotency key, or a CloudEvent's source and id (512 each) with their separator."""
MAX_SUBJECT_CHARS = 512
MAX_TEXT_CHARS = 20_000
MAX_INT32 = 2**31 - 1
MAX_COUNT = 2**53
"""Integers up to here are the same in every language's JSON."""
MAX_MILLISECONDS = 1e15
"""The limit on a duration of either sign: slack is negative when a run is late."""
MAX_MOMENT_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: what Python, JavaScript and Postgres can all show."""
MIN_MOMENT_MS = -62_135_596_800_000
"""The first millisecond of the year 1."""
MAX_USD = 10**12
MAX_USD_PLACES = 40
"""Decimal places of an amount: a price per million tokens times tokens needs far fewer."""
REPLACEMENT = "\ufffd"

_PLAIN_AMOUNT = re.compile(r"[+-]?([0-9]+\.?|[0-9]*\.[0-9]+)([eE][+-]?[0-9]+)?")
_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"


def stored_text(value: object, *, limit: int = MAX_TEXT_CHARS) -> object:
    """Return text in a form that can be stored: U+0000 and unpaired surrogates become U+FFFD, and text
    beyond `limit` characters is cut. Other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    text = value if len(value) <= limit else value[: limit - 1] + "…"
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _plainly_written(value: object) -> object:
    """Return an amount, or refuse text that only Decimal accepts: ` 1`, `1_000`."""
    if isinstance(value, str) and not _PLAIN_AMOUNT.fullmatch(value):
        raise PydanticCustomError("decimal_parsing", "it is not an amount")
    return value


Name = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=_PRINTABLE)]
"""A name or an identifier: at most 256 characters, no control characters."""
StepKey = Annotated[str, Field(max_length=MAX_STEP_CHARS, pattern=_PRINTABLE)]
"""The key of a step inside its run, or a name derived from it: at most 2,400 characters."""
TaskKey = Annotated[str, Field(max_length=MAX_KEY_CHARS, pattern=r"^[^\x00-\x1e\x7f]*$")]
"""The key that makes two tasks the same run; for a CloudEvent its source and id, separated by U+001F."""
Subject = Annotated[str, Field(max_length=MAX_SUBJECT_CHARS, pattern=_PRINTABLE)]
"""A NATS subject: at most 512 characters."""
StoredText = Annotated[str, BeforeValidator(stored_text)]
"""Text for people: characters that cannot be stored are replaced; cut at 20,000 characters."""
Int32 = Annotated[int, Field(ge=0, le=MAX_INT32)]
"""A small count or number: 0 to 2^31 - 1."""
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A count of tokens, calls or bytes: 0 to 2^53."""
Milliseconds = Annotated[
    float, Field(ge=-MAX_MILLISECONDS, le=MAX_MILLISECONDS, allow_inf_nan=False)
]
"""A duration in milliseconds; finite."""
Moment = Annotated[float, Field(ge=MIN_MOMENT_MS, le=MAX_MOMENT_MS, allow_inf_nan=False)]
"""A moment in milliseconds since the Unix epoch, in the years 1 to 9999."""
Number = Annotated[float, Field(allow_inf_nan=False)]
"""A finite number."""
Money = Annotated[
    Decimal,
    Field(ge=0, le=MAX_USD, decimal_places=MAX_USD_PLACES, allow_inf_nan=False),
]
"""US dollars: 0 to 10^12, at most 40 decimal places."""
WrittenMoney = Annotated[Money, BeforeValidator(_plainly_written)]
"""US dollars as people write them: text must be digits, with a point or an exponent."""
Balance = Annotated[
    Decimal,
    Field(ge=-MAX_USD, le=MAX_USD, decimal_places=MAX_USD_PLACES, allow_inf_nan=False),
]
"""What is left of an amount of US dollars; negative if more was spent."""
