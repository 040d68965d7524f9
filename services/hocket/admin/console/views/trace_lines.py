"""A trace as lines: each span below its parent, with its time as a bar. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hocket.admin.console.rendering import count, duration
from hocket.schemas.tracing import attributes as names
from hocket.schemas.tracing.replies import RunTrace, TraceSpan

MAX_LINES = 1_000
MAX_DEPTH = 8
"""Lines are not indented beyond this depth."""
WIDTH = 1_000
"""The width of a line's bar, in its units."""
LEAST_WIDTH = 2.0

TOKENS = (names.GEN_AI_INPUT_TOKENS, names.GEN_AI_OUTPUT_TOKENS)

Kind = Literal["queue", "model", "execution", "holds"]


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A span with its position: `offset_ms` after the run's start, `x` and `width` on the bar."""

    span: TraceSpan
    label: str
    depth: int
    kind: Kind
    offset_ms: float
    x: float
    width: float
    note: str


def trace_lines(trace: RunTrace, now: datetime) -> list[TraceLine]:
    """Return the lines of a trace's first spans; unfinished spans are drawn until `now`."""
    begun = trace.spans[0].started_at
    ends = [_ms(begun, span.ended_at or now) for span in trace.spans]
    whole = max(1.0, *ends)
    depths: dict[str, int] = {}
    lines = []
    for span, end_ms in zip(trace.spans[:MAX_LINES], ends, strict=False):
        depth = depths[span.span_id] = depths.get(span.parent_id or "", -1) + 1
        start_ms = _ms(begun, span.started_at)
        x = WIDTH * max(0.0, start_ms) / whole
        lines.append(
            TraceLine(
                span=span,
                label=_label(span),
                depth=min(depth, MAX_DEPTH),
                kind=_kind(span),
                offset_ms=start_ms,
                x=round(min(x, WIDTH - LEAST_WIDTH), 2),
                width=round(max(LEAST_WIDTH, WIDTH * (end_ms - start_ms) / whole), 2),
                note=_note(span),
            )
        )
    return lines


def _ms(begun: datetime, moment: datetime) -> float:
    return (moment - begun).total_seconds() * 1_000


def _label(span: TraceSpan) -> str:
    step = span.attributes.get(names.STEP)
    return str(step) if step is not None and span.name.startswith("step ") else span.name


def _kind(span: TraceSpan) -> Kind:
    if span.name == "queue":
        return "queue"
    if span.name.startswith(("invoke_workflow ", "step ")):
        return "holds"
    return "model" if span.service == "gateway" else "execution"


def _note(span: TraceSpan) -> str:
    """Return what is worth knowing about a span besides its time."""
    said = span.attributes
    told = [
        str(said[name]) for name in (names.WORKER, names.BACKEND, names.ERROR_TYPE) if name in said
    ]
    if names.GEN_AI_INPUT_TOKENS in said:
        given, made = (_count(said[name]) for name in TOKENS)
        told.append(f"{given} → {made} tokens")
    if span.name == "queue" and names.GATE_MS in said:
        told.append(f"{duration(float(said[names.GATE_MS]))} of it at the gate")
    return ", ".join(told)


def _count(number: object) -> str:
    return count(number) if isinstance(number, int) else str(number)
