"""Log lines of a run carry its id and that of its trace, whoever writes them: a service that says of
which run it tells, or a handler and a library that know of none.

What works for a run in a task of its own names it in RUNNING; a processor of the log adds its fields to
every line that is written there.
"""

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol

from hocket.schemas.tracing.spans import context_of_run


class Running(Protocol):
    """Work for a run."""

    def log_fields(self) -> dict[str, Any]:
        """Return what its lines carry: `run_id`, `trace_id` and what else names it."""
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
