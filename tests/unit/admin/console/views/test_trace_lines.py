"""Lines of a trace in the console."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hocket.admin.console.views.trace_lines import MAX_DEPTH, MAX_LINES, WIDTH, trace_lines
from hocket.schemas.tracing.replies import RunTrace, TraceSpan

BEGUN = datetime(2026, 5, 4, 12, tzinfo=UTC)


def _span(name: str, parent: str | None, begin: float, end: float | None, **more: Any) -> TraceSpan:
    return TraceSpan(
        span_id=more.pop("span_id", name),
        parent_id=parent,
        run_id="r",
        name=name,
        kind="internal",
        service=more.pop("service", "coordinator"),
        started_at=BEGUN + timedelta(milliseconds=begin),
        ended_at=None if end is None else BEGUN + timedelta(milliseconds=end),
        duration_ms=None if end is None else end - begin,
        status="ok",
        attributes=more,
    )


def _trace(*spans: TraceSpan) -> RunTrace:
    return RunTrace(run_id="r", trace_id="t" * 32, spans=spans)


def test_each_span_stands_below_its_own_and_where_its_time_is() -> None:
    trace = _trace(
        _span("invoke_workflow p", None, 0, 100),
        _span("step s", "invoke_workflow p", 0, 100, **{"hocket.step": "s[3]"}),
        _span("queue", "step s", 0, 25, **{"hocket.queue.gate_ms": 20}),
        _span("call fast", "step s", 25, 100, service="gateway", **{"hocket.backend": "east"}),
    )

    lines = trace_lines(trace, BEGUN)

    assert [(line.label, line.depth, line.kind) for line in lines] == [
        ("invoke_workflow p", 0, "holds"),
        ("s[3]", 1, "holds"),
        ("queue", 2, "queue"),
        ("call fast", 2, "model"),
    ]
    assert [(line.x, line.width) for line in lines[2:]] == [(0, 250), (250, 750)]
    assert [line.note for line in lines[2:]] == ["20 ms of it at the gate", "east"]


def test_what_goes_on_is_drawn_until_now() -> None:
    trace = _trace(
        _span("invoke_workflow p", None, 0, None), _span("step s", "invoke_workflow p", 50, None)
    )

    whole, half = trace_lines(trace, BEGUN + timedelta(milliseconds=100))

    assert (whole.x, whole.width) == (0, WIDTH)
    assert (half.x, half.width) == (WIDTH / 2, WIDTH / 2)


def test_a_deep_and_long_trace_is_bounded() -> None:
    spans = [_span("a0", None, 0, 1)] + [
        _span(f"a{n}", f"a{n - 1}", 0, 1) for n in range(1, MAX_LINES + 5)
    ]

    lines = trace_lines(_trace(*spans), BEGUN)

    assert len(lines) == MAX_LINES
    assert max(line.depth for line in lines) == MAX_DEPTH
