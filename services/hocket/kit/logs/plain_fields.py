"""Fields of a log line that JSON cannot hold, as others that it can. Pure.

Every text is freed of secrets before it is written in any notation: notations such as `repr` write some
secrets differently, and then they would not be found.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from pydantic_core import from_json, to_json

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.tracing.log_lines import MAX_FIELDS_CHARS

UNREADABLE_VALUE = "(a value that cannot be written down)"
MAX_VALUES = MAX_FIELDS_CHARS // 2
"""How many values fit into the fields of a line: each takes two characters or more."""
_WITH_ITEMS = (list, tuple, set, frozenset)


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; numbers that JSON does not have are written as text. Raises anything that
    reading the value raises, and PydanticSerializationError."""
    return to_json(value, fallback=str, inf_nan_mode="strings")


def plain_fields(fields: Mapping[str, Any], redacted: Callable[[str], str]) -> dict[str, Any]:
    """Return fields as values of JSON: bytes as text, halves of surrogate pairs as U+FFFD, and a value
    that cannot be read, or that is used up by reading it, as UNREADABLE_VALUE."""
    plain = _Plain(redacted)
    return {plain.name(name): plain.field(value) for name, value in fields.items()}


class _Plain:
    """Makes values plain that have at most MAX_VALUES inner ones."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._left = 0

    def field(self, value: Any) -> Any:
        """Return the value of a field."""
        self._left = MAX_VALUES
        try:
            return self._value(value)
        except Exception:  # reading a handler's own value may raise anything
            return UNREADABLE_VALUE

    def name(self, value: Any) -> str:
        """Return the name of a field."""
        is_bytes = isinstance(value, bytes)
        return self._text(value.decode(errors="backslashreplace") if is_bytes else str(value))

    def _value(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("it has too many values")
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str | PurePath):
            return self._text(str(value))
        if isinstance(value, bytes | bytearray):
            return self._text(value.decode(errors="backslashreplace"))
        if isinstance(value, Mapping):
            return {self.name(name): self._value(one) for name, one in value.items()}
        if isinstance(value, _WITH_ITEMS):
            return [self._value(one) for one in value]
        if hasattr(value, "__next__"):  # its values may have been taken by the first try
            return UNREADABLE_VALUE
        return self._other(value)

    def _text(self, text: str) -> str:
        return str(stored_text(self._redacted(text)))

    def _other(self, value: Any) -> Any:
        """Return a value of another kind as JSON shows it. Not by `str`, except for errors: it might be
        made of the `repr` of texts."""
        try:
            shown = from_json(json_bytes(value))
        except Exception:
            if not isinstance(value, BaseException):
                return UNREADABLE_VALUE
            shown = str(value)
        return self._value(shown)
