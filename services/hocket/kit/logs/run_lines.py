"""Log lines of a run carry its id and that of its trace, whoever writes them: a service that says of
which run it tells, or a handler and a library that know of none.

What works for a run in a task of its own names it in RUNNING; a processor of the log adds its fields to
every line that is written there. Another one hands the line to it, so that it can be kept for those who
look at the run; `LineHandler` does so with what libraries log.
"""

import logging
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from pydantic_core import to_json

from hocket.kit.process.clock import now_ms
from hocket.schemas.tracing.log_lines import MAX_FIELDS_CHARS, MAX_TEXT_CHARS, Level
from hocket.schemas.tracing.spans import context_of_run

UNREADABLE = "(a line that cannot be written down)"
_LEVELS = frozenset(get_args(Level))
_OTHERS = {"warn": "warning", "exception": "error", "fatal": "critical", "notset": "debug"}
_NO_FIELDS = frozenset(
    {"event", "level", "timestamp", "service", "run_id", "trace_id", "step", "attempt"}
)
"""What a line that is kept says in other ways."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line without secrets; `fields` is a JSON object, or nothing."""

    at_ms: float
    level: Level
    text: str
    fields: str


class Running(Protocol):
    """Work for a run."""

    def log_fields(self) -> dict[str, Any]:
        """Return what its lines carry: `run_id`, `trace_id` and what else names it."""
        ...

    def keep_line(self, line: Line) -> None:
        """Have a line kept beside the run; it must not wait, and may be called in any thread."""
        ...


RUNNING: ContextVar[Running | None] = ContextVar("running", default=None)


def of_run(run_id: str, traceparent: str | None) -> dict[str, str]:
    """Return the fields of a run's lines."""
    return {"run_id": run_id, "trace_id": context_of_run(run_id, traceparent).trace_id}


def add_run(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the fields of the run that is worked for, where the line does not tell of another."""
    if (running := RUNNING.get()) is not None:
        fields = running.log_fields()
        if event.get("run_id") in (None, fields.get("run_id")):
            for name, value in fields.items():
                event.setdefault(name, value)
    return event


def keeping(
    redacted: Callable[[str], str],
) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    """Return the processor that hands lines to the run that is worked for, without secrets. It stands
    behind those that say the level and write exceptions out."""

    def keep(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if (running := RUNNING.get()) is not None:
            of = event.get("run_id")
            if of is None or of == running.log_fields().get("run_id"):
                running.keep_line(_line_of(event, redacted))
        return event

    return keep


class LineHandler(logging.Handler):
    """Hands what libraries log to the run that they log it for, without secrets."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # else the root logger's is set
        self._redacted = redacted

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record over."""
        if (running := RUNNING.get()) is not None:
            try:
                text = self.format(record)
            except Exception:  # what a library hands to its log may raise anything
                text = UNREADABLE
            event = {"event": text, "level": record.levelname.lower(), "logger": record.name}
            running.keep_line(_line_of(event, self._redacted))


def _line_of(event: MutableMapping[str, Any], redacted: Callable[[str], str]) -> Line:
    said = str(event.get("level", "info"))
    level: Any = said if said in _LEVELS else _OTHERS.get(said, "info")
    try:
        text = redacted(str(event.get("event", "")))
        rest = {name: value for name, value in event.items() if name not in _NO_FIELDS}
        fields = redacted(to_json(rest, fallback=str).decode()) if rest else ""
    except Exception:  # a value of a handler's own may raise anything where it is read
        text, fields = UNREADABLE, ""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[: MAX_TEXT_CHARS - 1]}…"
    return Line(now_ms(), level, text, fields if len(fields) <= MAX_FIELDS_CHARS else "")
