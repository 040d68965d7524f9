"""An attempt as the log sees it: the fields of its lines, and how many of them are kept."""

from typing import Any, Protocol

from hocket.kit.logs.run_lines import Line
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.tracing.log_lines import MAX_ATTEMPT_CHARS, MAX_ATTEMPT_LINES

CUT = "Further lines of this attempt are not kept."
"""The last line of an attempt that logs more than is kept."""


class Lines(Protocol):
    """Accepts log lines of attempts, from any thread."""

    def take(self, attempt: "LoggedAttempt", number: int, line: Line) -> None:
        """Accept a line with its number within its attempt."""
        ...


class Named(Protocol):
    """Knows the fields that the lines of an attempt carry."""

    def log_fields(self) -> dict[str, Any]:
        """Return the fields."""
        ...


class LoggedAttempt:
    """Hands the lines of one attempt to `lines`, up to MAX_ATTEMPT_LINES and MAX_ATTEMPT_CHARS."""

    __slots__ = ("_chars", "_count", "_lines", "_named", "delivery", "step")

    def __init__(self, step: RequestedStep, delivery: int, named: Named, lines: Lines) -> None:
        self.step = step
        self.delivery = delivery
        self._named = named
        self._lines = lines
        self._count = 0
        self._chars = 0

    def log_fields(self) -> dict[str, Any]:
        """Return the fields that every log line of this attempt carries."""
        return self._named.log_fields()

    def keep_line(self, line: Line) -> None:
        """Keep a line, unless the attempt has logged too much; the last line kept says so."""
        number, self._count = self._count, self._count + 1
        self._chars += len(line.text) + len(line.fields)
        last = MAX_ATTEMPT_LINES - 1
        if number < last and self._chars <= MAX_ATTEMPT_CHARS:
            self._lines.take(self, number, line)
        elif number <= last:
            self._count = MAX_ATTEMPT_LINES
            self._lines.take(self, number, Line(line.at_ms, "warning", CUT, ""))
