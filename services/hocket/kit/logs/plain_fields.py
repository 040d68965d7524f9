"""Fields of a log line that JSON cannot hold, as others that it can. Pure.

Every text is freed of secrets before it is written in any notation: notations such as `repr` write some
secrets differently, and then they would not be found.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from pydantic_core import SchemaSerializer, core_schema, from_json, to_json

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.tracing.log_lines import MAX_FIELDS_CHARS

UNREADABLE_VALUE = "(a value that cannot be written down)"
MAX_VALUES = MAX_FIELDS_CHARS // 2
"""How many values fit into the fields of a line: each takes two characters or more."""
_WITH_ITEMS = (list, tuple, set, frozenset)
_PARTS = SchemaSerializer(core_schema.any_schema())


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; numbers that JSON does not have are written as text. Raises anything that
    reading the value raises, and PydanticSerializationError."""
    return to_json(value, fallback=str, inf_nan_mode="strings")


def plain_fields(fields: Mapping[str, Any], redacted: Callable[[str], str]) -> dict[str, Any]:
    """Return fields as values of JSON: bytes as text, halves of surrogate pairs as U+FFFD, and a value
    that cannot be read, that is used up by reading it, or that has more inner values than are left of
    MAX_VALUES, as UNREADABLE_VALUE."""
    plain = _Plain(redacted)
    return {plain.name(name): plain.field(value) for name, value in fields.items()}


class _Plain:
    """Makes the values of a line plain, which have at most MAX_VALUES inner ones together."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._left = MAX_VALUES

    def field(self, value: Any) -> Any:
        """Return the value of a field."""
        try:
            return self._value(value)
        except Exception:  # reading a handler's own value may raise anything
            return UNREADABLE_VALUE

    def name(self, value: Any) -> str:
        """Return the name of a field."""
        value = value.value if isinstance(value, Enum) else value
        is_bytes = isinstance(value, bytes)
        return self._text(value.decode(errors="backslashreplace") if is_bytes else str(value))

    def _value(self, value: Any) -> Any:
        value = value.value if isinstance(value, Enum) else value
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str | PurePath):
            return self._text(str(value))
        if isinstance(value, bytes | bytearray):
            return self._text(value.decode(errors="backslashreplace"))
        if isinstance(value, Mapping):
            self._take(len(value))
            return {self.name(name): self._value(one) for name, one in value.items()}
        if isinstance(value, _WITH_ITEMS):
            self._take(len(value))
            return [self._value(one) for one in value]
        if hasattr(value, "__next__"):  # its values may have been taken by the first try
            return UNREADABLE_VALUE
        return self._other(value)

    def _take(self, count: int) -> None:
        """Count inner values before they are read. Raises ValueError if there are too many."""
        if count > self._left:
            raise ValueError("the line has too many values")
        self._left -= count

    def _text(self, text: str) -> str:
        return str(stored_text(self._redacted(text)))

    def _other(self, value: Any) -> Any:
        """Return a value of another kind as JSON shows it, or else field by field if it is a model or a
        dataclass. Not by `str`, except for errors: it might be made of the `repr` of texts."""
        try:
            shown = from_json(json_bytes(value))
        except Exception:
            shown = str(value) if isinstance(value, BaseException) else _parts(value)
        return UNREADABLE_VALUE if type(shown) is type(value) else self._value(shown)


def _parts(value: Any) -> Any:
    """Return the fields of a model or dataclass, as its own serializers show them; any other value, and
    one whose fields cannot be read, as it is."""
    try:
        return _PARTS.to_python(value, by_alias=True, warnings=False)
    except Exception:  # reading a handler's own value may raise anything
        return value
