"""JSON values that are parsed and serialized at most once.

Most outputs are only passed on: from a message into a row and into the next message. A `Json` holds
a value as text, as a Python object, or both; each is made from the other on demand. What nothing
reads any more is left to its row (`left_to_row`).
"""

from functools import lru_cache
from threading import Lock
from typing import Any, Final

from pydantic_core import from_json

from hocket.coordinator.core.run.run_size import check_depth, size_of
from hocket.coordinator.core.run.state.stored_form import stored_form, text_of


class Json:
    """An immutable JSON value. The objects that it returns must not be changed."""

    __slots__ = ("_is_read", "_size", "_text", "_value")

    def __init__(self, value: Any, text: str | None, *, is_read: bool) -> None:
        self._value = value
        self._text = text
        self._is_read = is_read
        self._size = -1

    @property
    def value(self) -> Any:
        """The value as a Python object, which takes ten times the memory of its text. That of a short
        text is parsed again each time; those of the last long ones are kept (`ReadValues`)."""
        if self._is_read:
            return self._value
        assert self._text is not None
        value = from_json(self._text)
        if len(self._text) > MAX_SHORT_CHARS:
            self._value = value
            self._is_read = True
            _read.add(self, len(self._text))
        return value

    @property
    def text(self) -> str:
        """The value as JSON text; raises ValueError for a value that JSON cannot represent."""
        if self._text is None:
            assert self._is_read, "only its row has it"
            self._text = text_of(self._value)
        return self._text

    @property
    def size(self) -> int:
        """Its approximate size as JSON (bytes); raises ValueTooDeep if no message could hold it."""
        if self._size < 0:
            self._size = self._measured()
        return self._size

    @property
    def is_null(self) -> bool:
        """Whether it is `null`."""
        return self._value is None if self._is_read else self._text == "null"

    @property
    def is_in_row_only(self) -> bool:
        """Whether only its row has it now."""
        return self._text is None and not self._is_read

    def forget_value(self) -> None:
        """Keep only the text, if there is one; that of a long value soon (`forget_oldest`)."""
        if self._is_read and self._text is not None:
            if len(self._text) <= MAX_SHORT_CHARS:
                self.drop_value()
            else:
                _read.add(self, len(self._text))

    def drop_value(self) -> None:
        """Keep only the text, which there must be."""
        self._is_read = False  # first: another thread must not take the missing value for this one
        self._value = None

    def left_to_row(self) -> "Json":
        """Return what to keep once its row has it and nobody reads it again: its size."""
        return self if self.is_null else _in_row(self.size)

    def _measured(self) -> int:
        if self._is_read and not isinstance(self._value, dict | list):
            return size_of(self._value)
        text = self.text if self._text is not None else _text_of(self._value)
        self._text = text
        if text[:1] not in _CONTAINER:
            return size_of(self.value)
        if is_deeper(text, _SURELY_FLAT):
            check_depth(self.value)
        return _bytes_of(text)


class ReadValues:
    """The long values that have texts and are held as objects, too, in the order in which they were
    read last."""

    def __init__(self) -> None:
        self._sizes: dict[Json, int] = {}
        self._chars = 0
        self._lock = Lock()  # runs with large values are restored in threads

    def add(self, value: Json, chars: int) -> None:
        """Note that a value was read."""
        with self._lock:
            self._chars += chars - self._sizes.pop(value, 0)
            self._sizes[value] = chars

    def drop_oldest(self) -> None:
        """Drop the objects of the oldest, if those of more than MAX_READ_CHARS are held."""
        if self._chars <= MAX_READ_CHARS:
            return
        with self._lock:
            while self._chars > MAX_READ_CHARS and len(self._sizes) > 1:
                oldest = next(iter(self._sizes))
                self._chars -= self._sizes.pop(oldest)
                oldest.drop_value()


def forget_oldest() -> None:
    """Keep only the texts of the long values that were read longest ago, if they take much memory. To be
    called between events, so that none is parsed twice for one."""
    _read.drop_oldest()


def json_of(value: Any) -> Json:
    """Wrap a Python value, in the form in which its row gives it back (`stored_form.py`)."""
    return NULL if value is None else Json(stored_form(value), None, is_read=True)


def json_text(text: str) -> Json:
    """Wrap a JSON text."""
    return Json(None, text, is_read=False)


def compact(value: Any) -> Json:
    """Wrap a Python value that was found to be storable, as its text and its size."""
    text = text_of(value)
    made = Json(None, text, is_read=False)
    is_container = isinstance(value, dict | list)
    made._size = _bytes_of(text) if is_container else size_of(value)
    return made


def text_below(value: Any, names: tuple[str, ...]) -> str | None:
    """Return what a value has under these names as JSON text; None if there is nothing."""
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return text_of(value)


def is_deeper(text: str, levels: int) -> bool:
    """Tell whether a JSON text may nest deeper than this many levels: each takes two brackets."""
    return len(text) > 2 * levels and text.count("[") + text.count("{") > levels


def _text_of(value: Any) -> str:
    try:
        return text_of(value)
    except ValueError:
        size_of(value)  # raises a more precise error
        raise


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


@lru_cache(maxsize=1_024)
def _in_row(size: int) -> Json:
    value = Json(None, None, is_read=False)
    value._size = size
    return value


MAX_SHORT_CHARS: Final = 1_024
MAX_READ_CHARS: Final = 16 * 1024 * 1024
"""Their objects take some 180 MiB."""
_CONTAINER: Final = ("{", "[")
_SURELY_FLAT: Final = 190
NULL: Final = Json(None, "null", is_read=True)
_read: Final = ReadValues()
