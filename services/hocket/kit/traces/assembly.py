"""Builds the spans of runs from their rows. Pure.

The children of a run's span are its steps; those of a step, its waits and attempts; those of an attempt,
its model calls; those of a call, its wait for a place and its requests to backends. A sub-run is a child
of the step that started it, in the trace of the parent run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hocket.kit.traces.calls import call_spans
from hocket.kit.traces.reads import TraceRows
from hocket.kit.traces.rows import Row, json_of, plain, us
from hocket.kit.traces.steps import step_spans
from hocket.schemas.tracing import attributes as names
from hocket.schemas.tracing.context import TraceContext, read_context
from hocket.schemas.tracing.sampling import FAILED
from hocket.schemas.tracing.spans import Span, context_of_run, run_span_id, step_span_id


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of a run and its sub-runs, parents before their children."""

    run_id: str
    trace_id: str
    spans: tuple[Span, ...]
    truncated: bool = False


def traces_of(rows: TraceRows) -> list[Trace]:
    """Return a trace for each run in the rows that is not a sub-run of another one in them."""
    runs = {row["run_id"]: row for row in rows.runs}
    contexts: dict[str, TraceContext] = {}
    below: dict[str, list[Span]] = {}
    steps, attempts, calls = (_by_run(some) for some in (rows.steps, rows.attempts, rows.calls))
    for run_id, row in runs.items():  # in the order of acceptance: a run precedes its sub-runs
        root = row["root"]
        above = contexts.get(row["parent_run"]) if run_id != root else None
        own = context_of_run(run_id, row["traceparent"])
        context = own if above is None else TraceContext(above.trace_id, own.span_id, above.flags)
        contexts[run_id] = context
        found = below.setdefault(root, [])
        found.append(_run_span(row, context, is_root=run_id == root))
        found += step_spans(context.trace_id, steps.get(run_id, ()), attempts.get(run_id, ()))
        found += call_spans(context.trace_id, calls.get(run_id, ()))
    return [
        Trace(root, contexts[root].trace_id, tuple(_in_order(spans)), rows.truncated)
        for root, spans in below.items()
        if root in contexts
    ]


def _run_span(row: Row, context: TraceContext, *, is_root: bool) -> Span:
    ended, status = row["finished_at"], row["status"]
    attributes = {
        names.GEN_AI_OPERATION: "invoke_workflow",
        names.GEN_AI_WORKFLOW: row["pipeline"],
        names.RUN: row["run_id"],
        names.TENANT: row["tenant"],
        names.PIPELINE: row["pipeline"],
        names.VERSION: row["version"],
        names.STATUS: status,
        names.PRIORITY: row["priority"],
        names.COST: float(row["spent_usd"]),
        names.ERROR_TYPE: row["error_code"],
        names.MET_DEADLINE: None
        if ended is None
        else status in ("succeeded", "degraded") and ended <= row["deadline_at"],
    }
    for key, value in (json_of(row["labels"]) or {}).items():
        attributes[names.LABEL + key] = value
    return Span(
        context.trace_id,
        context.span_id,
        _above(row, is_root=is_root),
        row["run_id"],
        f"invoke_workflow {row['pipeline']}",
        "server" if is_root and row["parent_run"] is None else "internal",
        "coordinator",
        us(row["accepted_at"]),
        None if ended is None else us(ended),
        "error" if status in FAILED else "unset",
        (row["error_message"] or "") if status in FAILED else "",
        plain(attributes),
    )


def _above(row: Row, *, is_root: bool) -> str | None:
    """Return the parent of a run's span: the step that started the run, or the caller's span."""
    if row["parent_run"] is not None:
        return step_span_id(row["parent_run"], row["parent_step"])
    caller = read_context(row["traceparent"]) if is_root else None
    return None if caller is None else caller.span_id


def _by_run(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _in_order(spans: list[Span]) -> Iterable[Span]:
    """Yield spans depth-first, the children of a span in the order of their starts. A span whose parent
    is missing becomes a child of its run; a sub-run, one of the run at the top."""
    known = {span.span_id for span in spans}
    below: dict[str | None, list[Span]] = {}
    top, *others = spans
    for span in others:
        parent = span.parent_id
        if parent not in known:
            own = run_span_id(span.run_id)
            parent = top.span_id if own == span.span_id else own
            below.setdefault(parent, []).append(replace(span, parent_id=parent))
        else:
            below.setdefault(parent, []).append(span)
    for some in below.values():
        some.sort(key=lambda span: (span.started_at_us, span.ended_at_us or span.started_at_us))
    waiting: list[Any] = [top]
    while waiting:
        span = waiting.pop()
        yield span
        waiting.extend(reversed(below.get(span.span_id, ())))
