"""Logs as JSON lines, metrics for Prometheus. Traces: `kit/traces`, and `ledger/traces`."""

import json
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO
from urllib.parse import unquote, urlsplit

import structlog
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from pydantic_core import to_json

from hocket.kit.logs.hidden_secrets import hide, line_without_secrets, without_secrets
from hocket.kit.logs.run_lines import (
    LineHandler,
    RedactingFormatter,
    add_run,
    keeping,
    whatever_it_holds,
)
from hocket.kit.nats.server_urls import passwords_of
from hocket.kit.process.limits import memory
from hocket.kit.process.settings import Settings


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The telemetry of a process; created once, by `setup`."""

    service: str
    registry: CollectorRegistry


def setup(service: str, settings: Settings) -> Telemetry:
    """Configure the logs and metrics of this process."""
    hide(passwords_of(settings.nats_url))
    database = urlsplit(settings.database_url)
    if database.password:
        hide((database.password, unquote(database.password)))
    _configure_logs(service, settings)
    # series `_created` say when each other one began: they would double the number of series
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return Telemetry(service=service, registry=registry)


def _configure_logs(service: str, settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=_as_json)
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_run,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            memory.end_where_logged,
            structlog.processors.format_exc_info,
            keeping(without_secrets),
            whatever_it_holds(renderer),
            line_without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=_Output(sys.stdout)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(memory.Ending())
    handler.setFormatter(RedactingFormatter(without_secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler, LineHandler(without_secrets)])


class _Output:
    """A file for log lines that drops what it cannot write: neither a full disk nor a function that
    closes standard output may end a process or prevent the answer to a step. The number of dropped lines
    is written before the next line that can be written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._dropped = 0

    def write(self, line: str) -> None:
        """Write a line, or count it as dropped."""
        if self._dropped:
            line = f'{{"event": "log_lines_dropped", "count": {self._dropped}}}\n{line}'
        try:
            self._file.write(line)
            self._file.flush()
        except (OSError, ValueError):  # full, or closed
            self._dropped += 1
        else:
            self._dropped = 0

    def flush(self) -> None:
        """Do nothing: each line has been flushed."""


def _as_json(event: Any, default: Callable[[Any], Any]) -> str:
    """Return a log line as JSON in ASCII, whatever encoding the terminal has; numbers that JSON does not
    have are written as text. Falls back from pydantic's fast serializer to the standard one for what the
    former cannot write in ASCII, or at all."""
    with suppress(ValueError):
        line = to_json(event, fallback=default, inf_nan_mode="strings")
        return line.decode() if line.isascii() else json.dumps(json.loads(line))
    return json.dumps(event, default=default)
