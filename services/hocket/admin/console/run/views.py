"""The views of a run's page, shown one at a time: steps, calls, trace, logs, journal.

Each that reads much takes a place for long reads itself, so it must not be read by who holds one.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, get_args

from fastapi import Request

from hocket.admin.calls import reads as calls
from hocket.admin.console.rendering import address
from hocket.admin.console.run import relations
from hocket.admin.console.views.trace_lines import trace_lines
from hocket.admin.context import Context
from hocket.admin.logs.reads import LogFilter, logs_of
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads as runs
from hocket.admin.runs.step_journals import journal_of
from hocket.admin.traces.reads import trace_of
from hocket.schemas.ids import by_number
from hocket.schemas.tracing.log_lines import Level

STEP_ROWS = 200
LINE_ROWS = 500
LEVELS = get_args(Level)
MAX_CALLS = 500


class View(StrEnum):
    """What the lower half of the page shows."""

    TIMELINE = "timeline"
    STEPS = "steps"
    CALLS = "calls"
    TRACE = "trace"
    LOGS = "logs"
    JOURNAL = "journal"
    VALUES = "values"

    @property
    def label(self) -> str:
        """The name on its tab."""
        words = {View.CALLS: "Model calls", View.VALUES: "Input and output"}
        return words.get(self, self.capitalize())


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested view, its page, and the filter of log lines."""

    run_id: str
    after: str | None = None
    step: str = ""
    level: Level | None = None


Values = dict[str, Any]


async def values_of(
    view: View, request: Request, context: Context, caller: Caller, asked: Asked
) -> Values:
    """Return the template's values for a view; empty for views that need only the run itself."""
    read = READS.get(view)
    return {} if read is None else await read(request, context, caller, asked)


async def _steps(request: Request, context: Context, caller: Caller, asked: Asked) -> Values:
    async with context.long_reads.place(caller.tenant):
        steps, _ = await runs.list_steps(
            context.pool, asked.run_id, after=asked.after, limit=STEP_ROWS, values=False
        )
        of = context.pool, caller.tenant, asked.run_id
        costs = await relations.step_costs(*of, steps.steps)
    shown = steps.steps
    if asked.after is None and steps.next is None:  # else the next page would begin within this one
        shown = tuple(sorted(shown, key=lambda step: (step.ready_at, by_number(step.step))))
    return {"steps": shown, "step_costs": costs, "older": _older(request, steps.next)}


async def _calls(request: Request, context: Context, caller: Caller, asked: Asked) -> Values:
    of = context.pool, caller.tenant, asked.run_id
    async with context.long_reads.place(caller.tenant):
        page = await calls.of_run(*of, MAX_CALLS, after=asked.after)
        elsewhere = await relations.elsewhere(*of)
    ids = [one.call_id for one in page.calls]
    return {
        "calls": page,
        "older": _older(request, page.next),
        "calls_sql": relations.calls_sql(caller.tenant, asked.run_id),
        "elsewhere": elsewhere,
        "elsewhere_sql": relations.elsewhere_sql(caller.tenant, asked.run_id),
        "kept": await relations.kept_calls(*of, ids) if caller.sees_content else set(),
    }


async def _trace(_request: Request, context: Context, caller: Caller, asked: Asked) -> Values:
    now = datetime.now(UTC)
    return await trace_of(
        context,
        caller.tenant,
        asked.run_id,
        lambda trace: {"trace": trace, "lines": trace_lines(trace, now)},
    )


async def _logs(request: Request, context: Context, caller: Caller, asked: Asked) -> Values:
    async with context.long_reads.place(caller.tenant):
        lines = await logs_of(
            context.pool,
            caller.tenant,
            asked.run_id,
            LogFilter(asked.step or None, asked.level),
            after=asked.after,
            limit=LINE_ROWS,
            with_texts=caller.sees_content,
        )
    return {
        "logs": lines,
        "older": _older(request, lines.next),
        "step": asked.step,
        "level": asked.level or "",
        "levels": LEVELS,
    }


async def _journal(_request: Request, context: Context, caller: Caller, asked: Asked) -> Values:
    return {"journal": await journal_of(context, caller.tenant, asked.run_id)}


def _older(request: Request, after: str | None) -> str | None:
    return address(request, after=after) if after else None


READS: Mapping[View, Callable[[Request, Context, Caller, Asked], Awaitable[Values]]] = {
    View.STEPS: _steps,
    View.CALLS: _calls,
    View.TRACE: _trace,
    View.LOGS: _logs,
    View.JOURNAL: _journal,
}
