"""Reads rows from a driver, no more than an answer may hold.

The size of an answer counts the characters of text and JSON, the bytes of blobs, and VALUE_CHARS for any
other value, including values inside JSON.
Reading stops at the row that exceeds MAX_ANSWER_CHARS; that row is left out, unless it is the first. A
first row beyond MAX_ROW_CHARS is an error. JSON is parsed only if its row is in the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import CursorResult

from hocket.workers.sql.errors import SqlAnswerTooLarge

MAX_ANSWER_CHARS: Final = 8_000_000
MAX_ROW_CHARS: Final = 32_000_000
VALUE_CHARS: Final = 16
"""The size that a value other than text counts as."""


class JsonText(str):
    """A value of type json that has not been parsed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Raw rows with their column names and their size; `cut` if there were more rows."""

    columns: tuple[str, ...]
    rows: list[Sequence[Any]]
    size: int
    cut: bool = False


def read_answer(result: CursorResult[Any], max_rows: int, database: str) -> Answer:
    """Read at most `max_rows` rows, one at a time, and stop when the answer is full; raise
    SqlAnswerTooLarge if the first row alone is too large."""
    columns = tuple(result.keys())
    rows: list[Sequence[Any]] = []
    size = 0
    for row in result:
        more = sum(map(_size, row))
        is_full = len(rows) == max_rows or (size + more > MAX_ANSWER_CHARS and bool(rows))
        if is_full:
            result.close()
            return Answer(columns, rows, size, cut=True)
        size += more
        if size > MAX_ROW_CHARS:
            raise SqlAnswerTooLarge(
                database=database, max_bytes=MAX_ROW_CHARS, component=f"sql:{database}"
            )
        rows.append(row)
    return Answer(columns, rows, size)


def _size(value: Any) -> int:
    if isinstance(value, JsonText):  # `[[],[],...]` is 20 times as large once it is parsed
        return len(value) + VALUE_CHARS * (value.count(",") + value.count("[") + value.count("{"))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list | tuple):
        size = VALUE_CHARS * (1 + len(value))
        if size > MAX_ROW_CHARS:  # already too large, whatever its elements are
            return size
        return VALUE_CHARS + sum(map(_size, value))
    return VALUE_CHARS
