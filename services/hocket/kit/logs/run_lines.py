"""Adds the ids of a run and its trace to the run's log lines, whoever writes them.

That may be a service that names the run itself, or a handler or library that knows of none. Code that
works for a run in a task of its own sets RUNNING; a log processor adds the run's fields to every line
that is written there. Another processor hands the line to the run, so that it can be kept for those who
inspect the run; `LineHandler` does the same for lines from libraries.
"""

import logging
import re
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from hocket.kit.logs.plain_fields import UNREADABLE_VALUE, json_bytes, plain_fields
from hocket.kit.process.clock import now_ms
from hocket.schemas.tracing.log_lines import MAX_FIELDS_CHARS, MAX_TEXT_CHARS, Level
from hocket.schemas.tracing.spans import context_of_run

UNREADABLE = "(a line that cannot be written down)"
FURTHER = "\n  | "
"""Separates the lines of one record of a library."""
_ENDS_OF_LINES = re.compile(r"\r\n|\r|\n")
_LEVELS = frozenset(get_args(Level))
_OTHERS = {"warn": "warning", "exception": "error", "fatal": "critical", "notset": "debug"}
_NO_FIELDS = frozenset(
    {"event", "level", "timestamp", "service", "run_id", "trace_id", "step", "attempt"}
)
"""Keys that are not among the fields of a kept line, because it has them in another form."""


@dataclass(frozen=True, slots=True)
class Line:
    """A log line without secrets; `fields` is a JSON object as text, or empty."""

    at_ms: float
    level: Level
    text: str
    fields: str


class Running(Protocol):
    """Code that works for a run."""

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of its lines: `run_id`, `trace_id` and others that identify the work."""
        ...

    def keep_line(self, line: Line) -> None:
        """Store a line with the run. Must not block; may be called in any thread."""
        ...


RUNNING: ContextVar[Running | None] = ContextVar("running", default=None)


def of_run(run_id: str, traceparent: str | None) -> dict[str, str]:
    """Return the fields that identify a run in its log lines."""
    return {"run_id": run_id, "trace_id": context_of_run(run_id, traceparent).trace_id}


def add_run(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the fields of the current run, unless the line names another run; a processor for
    structlog."""
    if (running := RUNNING.get()) is not None:
        fields = running.log_fields()
        if event.get("run_id") in (None, fields.get("run_id")):
            for name, value in fields.items():
                event.setdefault(name, value)
    return event


def keeping(
    redacted: Callable[[str], str],
) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    """Return the structlog processor that hands lines, without secrets, to the current run. It must
    follow those that add the level and format exceptions."""

    def keep(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if (running := RUNNING.get()) is not None:
            of = event.get("run_id")
            if of is None or of == running.log_fields().get("run_id"):
                running.keep_line(_line_of(event, redacted))
        return event

    return keep


def whatever_it_holds(renderer: Callable[[Any, str, MutableMapping[str, Any]], Any]) -> Any:
    """Return a structlog renderer that writes every line: a value that raises when it is read (a handler
    may log anything) is replaced, instead of failing the code that logs it."""

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        try:
            return renderer(logger, method, dict(event))
        except Exception:
            readable = {str(name): _readable(value) for name, value in event.items()}
            return renderer(logger, method, readable)

    return render


def _readable(value: Any, otherwise: str = UNREADABLE_VALUE) -> str:
    try:
        return str(value)
    except Exception:
        return otherwise


class RedactingFormatter(logging.Formatter):
    """Formats what libraries log, with the fields of the current run and without secrets.

    Further lines of a record begin with FURTHER: what is logged may come from anybody, and must not
    look like a line of its own.
    """

    def __init__(self, redacted: Callable[[str], str], form: str = "%(message)s") -> None:
        super().__init__(form)
        self._redacted = redacted

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = super().format(record)
        if (running := RUNNING.get()) is not None:
            line += "".join(f" {name}={value}" for name, value in running.log_fields().items())
        return FURTHER.join(_ENDS_OF_LINES.split(self._redacted(line)))


class LineHandler(logging.Handler):
    """Hands what libraries log, without secrets, to the current run."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # otherwise the root logger's is set
        self._redacted = redacted

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record to the current run, if there is one."""
        if (running := RUNNING.get()) is not None:
            try:
                text = self.format(record)
            except Exception:  # formatting what a library logs may raise anything
                text = UNREADABLE
            event = {"event": text, "level": record.levelname.lower(), "logger": record.name}
            running.keep_line(_line_of(event, self._redacted))


def _line_of(event: MutableMapping[str, Any], redacted: Callable[[str], str]) -> Line:
    said = _readable(event.get("level", "info"))
    level: Any = said if said in _LEVELS else _OTHERS.get(said, "info")
    text = redacted(_readable(event.get("event", ""), UNREADABLE))
    rest = {name: value for name, value in event.items() if name not in _NO_FIELDS}
    fields = redacted(_fields_text(rest, redacted)) if rest else ""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[: MAX_TEXT_CHARS - 1]}…"
    return Line(now_ms(), level, text, fields if len(fields) <= MAX_FIELDS_CHARS else "")


def _fields_text(fields: Mapping[str, Any], redacted: Callable[[str], str]) -> str:
    """Return fields as a JSON object. Numbers that JSON does not have are written as text; a value that
    cannot be written as JSON is replaced, and the others stay."""
    try:
        return json_bytes(fields).decode()
    except Exception:  # reading a handler's own value may raise anything
        return json_bytes(plain_fields(fields, redacted)).decode()
