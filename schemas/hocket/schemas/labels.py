"""Labels: what a task is charged to (a customer, a team, a feature), as names with values.

A run keeps the labels of its task; its sub-runs and model calls inherit them. In a header they have the
form of W3C Baggage: `customer=acme,team=search`, with percent-encoded values.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import quote, unquote

from pydantic import Field

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput

MAX_LABELS = 16
MAX_LABEL_KEY_CHARS = 64
MAX_LABEL_VALUE_CHARS = 256
MAX_LABELS_HEADER_CHARS = 16_384

RESERVED_PREFIX = "hocket."
"""The prefix of labels that only the platform sets."""
KEY_LABEL = f"{RESERVED_PREFIX}key"
"""The label of calls that are made with a key of the platform: the key's id, so that it can have a
budget."""

KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"
VALUE_PATTERN = r"^[^\x00-\x1f\x7f]+$"
_NEXT = "%[89ABab][0-9A-Fa-f]"
"""A further byte of a character in UTF-8, percent-encoded."""
_CHAR = "|".join(
    (
        r"[!#-$&-+\--:<-\[\]-~]",
        "%[2-6][0-9A-Fa-f]|%7[0-9A-Ea-e]",
        f"%(?:[Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f]){_NEXT}",
        f"%[Ee]0%[ABab][0-9A-Fa-f]{_NEXT}|%[Ee][Dd]%[89][0-9A-Fa-f]{_NEXT}",
        f"%[Ee][1-9A-Ca-cEeFf]{_NEXT}{_NEXT}",
        f"%[Ff]0%[9ABab][0-9A-Fa-f]{_NEXT}{_NEXT}|%[Ff]4%8[0-9A-Fa-f]{_NEXT}{_NEXT}",
        f"%[Ff][1-3]{_NEXT}{_NEXT}{_NEXT}",
    )
)
_LABEL = f"[A-Za-z0-9][A-Za-z0-9_.:-]*=(?:{_CHAR})+"
_HEADER = re.compile(f"{_LABEL}(?:, ?{_LABEL})*", re.ASCII)
"""Labels in a header; anything that it matches is valid UTF-8 once decoded."""
_KEY = re.compile(KEY_PATTERN[1:-1], re.ASCII)
_VALUE = re.compile(VALUE_PATTERN[1:-1])

Labels = Annotated[
    dict[
        Annotated[str, Field(max_length=MAX_LABEL_KEY_CHARS, pattern=KEY_PATTERN)],
        Annotated[str, Field(max_length=MAX_LABEL_VALUE_CHARS, pattern=VALUE_PATTERN)],
    ],
    Field(max_length=MAX_LABELS, json_schema_extra={"additionalProperties": False}),
]
"""At most 16 labels; keys of 64 letters, digits and `_.:-`, values of 256 characters."""


def header_pattern(most: int = MAX_LABELS) -> str:
    """Return the pattern of a header with 1 to `most` labels, for documents. The code refuses more
    labels by counting them, because that error says more than a failed match."""
    return f"^{_LABEL}(?:, ?{_LABEL}){{0,{most - 1}}}$"


def read_labels(text: str, field: str) -> dict[str, str]:
    """Return the labels in a header; raise InvalidInput, also for two values of one key."""
    if len(text) > MAX_LABELS_HEADER_CHARS:
        raise InvalidInput(
            field=field,
            reason=f"it has {len(text)} characters",
            cure=f"Use at most {MAX_LABELS_HEADER_CHARS}.",
        )
    if _HEADER.fullmatch(text) is None:
        raise InvalidInput(
            field=field,
            reason=f"`{shown_text(text)}` is not a list of labels",
            cure="Write `customer=acme,team=search`, with values percent-encoded as UTF-8.",
        )
    pairs = (part.strip().partition("=")[::2] for part in text.split(","))
    return checked_labels(((key, unquote(value)) for key, value in pairs), field)


def checked_labels(pairs: Iterable[tuple[str, str]], field: str) -> dict[str, str]:
    """Return pairs as labels; raise InvalidInput, naming the field and the label, also for two values
    of one key: a task would be charged to another one, and a filter would match other runs, than is
    meant."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if not is_label(key, value):
            raise InvalidInput(
                field=field,
                reason=f"`{shown_text(f'{key}={value}')}` is not a label",
                cure=f"Use keys of 1 to {MAX_LABEL_KEY_CHARS} letters, digits and `_.:-`, and "
                f"values of 1 to {MAX_LABEL_VALUE_CHARS} characters without control characters.",
            )
        if found.setdefault(key, value) != value:
            raise InvalidInput(
                field=field,
                reason=f"`{shown_text(key)}` is given twice, with different values",
                cure="Give each key once.",
            )
    if len(found) > MAX_LABELS:
        raise InvalidInput(
            field=field, reason=f"it has {len(found)} labels", cure=f"Use at most {MAX_LABELS}."
        )
    return found


def given_labels(text: str, field: str) -> dict[str, str]:
    """Return the labels in a task's header; raise InvalidInput, also for labels that only the platform
    sets."""
    found = read_labels(text, field)
    if key := reserved_among(found):
        raise InvalidInput(field=field, reason=reserved_reason(key), cure="Use another name.")
    return found


def reserved_among(labels: Iterable[str]) -> str | None:
    """Return the name of a label that only the platform sets, if there is one."""
    return next((key for key in labels if key.startswith(RESERVED_PREFIX)), None)


def reserved_reason(key: str) -> str:
    """Return why a task may not have such a label."""
    return (
        f"`{shown_text(key)}` is reserved for the platform, like all labels that begin with "
        f"`{RESERVED_PREFIX}`"
    )


def is_label(key: Any, value: Any) -> bool:
    """Tell whether a key and a value form a valid label."""
    return (
        isinstance(key, str)
        and isinstance(value, str)
        and len(key) <= MAX_LABEL_KEY_CHARS
        and len(value) <= MAX_LABEL_VALUE_CHARS
        and _KEY.fullmatch(key) is not None
        and _VALUE.fullmatch(value) is not None
        and (value.isascii() or _is_unicode(value))
    )


def header_of(labels: Mapping[str, str]) -> str:
    """Return labels in the form of a header."""
    return ",".join(f"{key}={quote(value, safe='')}" for key, value in labels.items())


def _is_unicode(value: str) -> bool:
    """Tell whether a text has no unpaired surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
