"""JSON values that are read and written once.

Most outputs are only passed on: from a message into a row and into the next message. A `Json` holds
a value as text, as Python has it, or both; each is made from the other when it is asked for the
first time.
"""

from typing import Any, Final

from pydantic_core import from_json, to_json

from hocket.coordinator.core.run.run_size import size_of


class Json:
    """An immutable JSON value. What it gives must not be changed."""

    __slots__ = ("_is_read", "_size", "_text", "_value")

    def __init__(self, value: Any, text: str | None, *, is_read: bool) -> None:
        self._value = value
        self._text = text
        self._is_read = is_read
        self._size = -1

    @property
    def value(self) -> Any:
        """The value as Python has it."""
        if not self._is_read:
            assert self._text is not None
            self._value = from_json(self._text)
            self._is_read = True
        return self._value

    @property
    def text(self) -> str:
        """The value as JSON; raises ValueError for one that JSON does not have."""
        if self._text is None:
            self._text = to_json(self._value, inf_nan_mode="null").decode()
        return self._text

    @property
    def size(self) -> int:
        """About how many bytes it has as JSON; raises ValueTooDeep where no message could hold
        it."""
        if self._size < 0:
            self._size = self._measured()
        return self._size

    @property
    def is_null(self) -> bool:
        """Whether it is `null`."""
        return self._value is None if self._is_read else self._text == "null"

    def text_at(self, names: tuple[str, ...]) -> str | None:
        """Return the text of what stands below these names, None where there is no such thing."""
        if not names:
            return self.text
        value = self.value
        for name in names:
            if not isinstance(value, dict) or name not in value:
                return None
            value = value[name]
        return to_json(value, inf_nan_mode="null").decode()

    def _measured(self) -> int:
        if self._is_read and not isinstance(self._value, dict | list):
            return size_of(self._value)
        text = self.text if self._text is not None else _text_of(self._value)
        self._text = text
        if is_deeper(text, _SURELY_FLAT):
            return size_of(self.value)
        if text[:1] in _CONTAINER:
            return len(text) if text.isascii() else len(text.encode())
        return size_of(self.value)


def json_of(value: Any) -> Json:
    """Return a value that Python has."""
    return NULL if value is None else Json(value, None, is_read=True)


def json_text(text: str) -> Json:
    """Return the value of a JSON text."""
    return Json(None, text, is_read=False)


def is_deeper(text: str, levels: int) -> bool:
    """Tell whether a JSON text may nest deeper than so many levels: each takes two brackets."""
    return len(text) > 2 * levels and text.count("[") + text.count("{") > levels


def _text_of(value: Any) -> str:
    try:
        return to_json(value, inf_nan_mode="null").decode()
    except ValueError:
        size_of(value)  # it says what is wrong
        raise


_CONTAINER: Final = ("{", "[")
_SURELY_FLAT: Final = 190
NULL: Final = Json(None, "null", is_read=True)
