"""Logs as JSON lines, metrics for Prometheus, spans for OpenTelemetry.

Spans are made only where an OTLP endpoint is configured; without one `exporting` is false, and the
hot paths do not even ask for a tracer. The W3C context travels in the header `traceparent`.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, TextIO
from urllib.parse import unquote, urlsplit

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from pydantic_core import to_json

from hocket.kit.nats.server_urls import passwords_of
from hocket.kit.process import memory
from hocket.kit.process.settings import Settings
from hocket.schemas.redaction import Redactor

_PROPAGATOR = TraceContextTextMapPropagator()
FIELDS = ("traceparent", "tracestate")
"""The headers of a trace context."""
EXPORT_TIMEOUT_S = 5
_hidden: list[str] = []
"""Values that no line of the log shows."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a process reports with; made once by `setup`."""

    service: str
    registry: CollectorRegistry
    exporting: bool
    tracer: trace.Tracer

    def flush(self) -> None:
        """Send the spans that wait, within EXPORT_TIMEOUT_S, and make no more: the process ends. The SDK
        itself takes as long as whoever takes the spans likes."""
        provider: Any = trace.get_tracer_provider()
        if self.exporting:
            sending = Thread(target=provider.shutdown, name="last spans", daemon=True)
            sending.start()
            sending.join(EXPORT_TIMEOUT_S)


def hide(secrets: Iterable[str]) -> None:
    """Keep values out of every line that this process logs from now on."""
    _hidden.extend(secrets)


def setup(service: str, settings: Settings) -> Telemetry:
    """Configure logs, metrics and spans of this process."""
    hide(passwords_of(settings.nats_url))
    database = urlsplit(settings.database_url)
    if database.password:
        hide((database.password, unquote(database.password)))
    _configure_logs(service, settings)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    if settings.otlp_endpoint:
        _configure_spans(service, settings.otlp_endpoint)
    return Telemetry(
        service=service,
        registry=registry,
        exporting=settings.otlp_endpoint is not None,
        tracer=trace.get_tracer(f"hocket.{service}"),
    )


def extract(headers: Mapping[str, str] | None) -> Context:
    """Return the trace context that a message's headers carry."""
    return _PROPAGATOR.extract(dict(headers or {}))


def inject(headers: MutableMapping[str, str]) -> None:
    """Put the current trace context into a message's headers."""
    _PROPAGATOR.inject(headers)


def _configure_logs(service: str, settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=_as_json)
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
    )
    redacted = Redactor(_hidden)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            memory.end_where_logged,
            structlog.processors.format_exc_info,
            renderer,
            _redacting(redacted),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=_Output(sys.stdout)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(memory.Ending())
    handler.setFormatter(_RedactingFormatter(redacted))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _redacting(redacted: Redactor) -> Callable[[Any, str, Any], str]:
    """Return the last processor of a log line, which hides secrets in the text."""
    return lambda _logger, _method, line: redacted(line)


class _RedactingFormatter(logging.Formatter):
    """Formats what libraries log, without secrets."""

    def __init__(self, redacted: Redactor) -> None:
        super().__init__("%(message)s")
        self._redacted = redacted

    def format(self, record: logging.LogRecord) -> str:
        return self._redacted(super().format(record))


class _Output:
    """A file for log lines that drops what it cannot write: neither a full disk nor a function that
    closes standard output may end a process or keep a step from being answered. What was dropped is
    counted in front of the next line that can be written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._dropped = 0

    def write(self, line: str) -> None:
        """Write a line, or count it."""
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
        """Do nothing: each line was flushed."""


def _as_json(event: Any, default: Callable[[Any], Any]) -> str:
    """Return a log line; in ASCII, whatever the terminal takes. The quick way cannot do all of it."""
    with suppress(ValueError):
        line = to_json(event, fallback=default)
        if line.isascii():
            return line.decode()
    return json.dumps(event, default=default)


def _configure_spans(service: str, endpoint: str) -> None:
    # imported here: the SDK and its exporter cost 150 ms that most processes need not pay
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"hocket-{service}"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # `flush` does it
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
