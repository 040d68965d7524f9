"""A trace as the terminal draws it, and as Perfetto reads it."""

import sys
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from hocket.cli.drawing import span_tree as drawing
from hocket.cli.drawing.span_tree import span_tree, trace_summary
from hocket.kit.traces.chrome_trace import chrome_trace

BEGUN = datetime(2026, 5, 4, 12, tzinfo=UTC)


def at(ms: float) -> str:
    return (BEGUN + timedelta(milliseconds=ms)).isoformat()


def span(
    name: str, parent: str | None, begun: float, ended: float | None, **said: Any
) -> dict[str, Any]:
    return {
        "span_id": said.pop("id", name), "parent_id": parent, "run_id": "r1", "name": name,
        "kind": said.pop("kind", "internal"), "service": said.pop("service", "coordinator"),
        "started_at": at(begun), "ended_at": None if ended is None else at(ended),
        "duration_ms": None if ended is None else ended - begun,
        "status": said.pop("status", "unset"), "message": "",
        "attributes": {f"hocket.{key}": value for key, value in said.pop("ours", {}).items()} | said,
    }  # fmt: skip


TOKENS = {"gen_ai.usage.input_tokens": 1_200, "gen_ai.usage.output_tokens": 34}
CALL = {"call.id": "c", "cost_usd": 0.0125, "backend": "east"}
RUN = {"pipeline": "report", "pipeline.version": 2, "run.status": "degraded", "cost_usd": 0.0125}
TRACE: dict[str, Any] = {
    "run_id": "r1",
    "trace_id": "t" * 32,
    "truncated": False,
    "spans": [
        span("invoke_workflow report", None, 0, 100, ours=RUN),
        span("step ask", "invoke_workflow report", 0, 60, ours={"step": "ask"}),
        span("queue", "step ask", 0, 10, id="q1", ours={"step": "ask", "attempt": 1}),
        span("process ask", "step ask", 10, 60, service="worker"),
        span("call fast", "process ask", 20, 50, service="gateway", ours=CALL),
        span("queue", "call fast", 20, 20.5, id="q2", service="gateway"),
        span("chat gpt", "call fast", 20.5, 50, service="gateway", kind="client", ours=CALL, **TOKENS),
        span("step look", "invoke_workflow report", 60, 100, status="error",
             ours={"step": "look[3]", "step.state": "failed"}, **{"error.type": "timeout"}),
    ],
}  # fmt: skip


TREE = """\
SPAN                      FROM    TIME                             0                  100 ms
invoke_workflow report  0.0 ms  100 ms                             ─────────────────────────
├─ ask                  0.0 ms   60 ms                             ───────────────
│  ├─ queue             0.0 ms   10 ms                             ··
│  └─ process ask        10 ms   50 ms                               █████████████
│     └─ call fast       20 ms   30 ms  east 1,200→34 tok $0.0125       ███████
└─ look[3]               60 ms   40 ms  failed timeout                            ──────────
2 spans are not shown: --all shows all of them
"""


def drawn(**options: Any) -> list[str]:
    lines = span_tree(TRACE, width=92, now=at(100), **options)
    return [line.plain.rstrip() for line in lines]


def test_the_tree_shows_time_tokens_cost_and_errors() -> None:
    assert [line.plain for line in trace_summary(TRACE)] == [
        "run r1  report v2  degraded in 100 ms, 1 model call, $0.0125",
        "trace " + "t" * 32,
    ]
    assert drawn() == TREE.splitlines()
    assert len(drawn(every=True)) == 1 + len(TRACE["spans"])


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_tree_is_as_wide_as_asked_for(width: int) -> None:
    long = [
        span(f"step {name}", "invoke_workflow report", 0, 125_000, ours={"step": name}, id=name)
        for name in ("a_step_with_quite_a_long_name_1", "b")
    ]
    lines = span_tree({**TRACE, "spans": TRACE["spans"] + long}, width=width, now=at(125_000))
    rows = [line.plain for line in lines[:-1]]
    assert max(map(len, rows)) == width
    assert rows[0].startswith("SPAN")
    assert rows[0].endswith("2 min 05 s")
    assert all("█" in row or "─" in row or "·" in row for row in rows[1:])
    assert any("  east" in row for row in rows)
    assert any(row.startswith("├─ a_step_w") for row in rows)


def test_the_total_has_what_tools_charged() -> None:
    top = {**TRACE["spans"][0], "attributes": {"hocket.cost_usd": 0.75}}
    first, _ = trace_summary({**TRACE, "spans": [top, *TRACE["spans"][1:]]})
    assert first.plain.endswith(", 1 model call, $0.75")


def test_lines_lead_to_the_spans_that_follow_under_the_same_parent() -> None:
    depths = [0, 1, 2, 3, 2, 1, 2, 3, 3]
    spans = [span(f"step s{n}", None, 0, 1, ours={"step": f"s{n}"}) for n in range(len(depths))]
    assert list(drawing._labels(spans, depths)) == [
        "s0", "├─ s1", "│  ├─ s2", "│  │  └─ s3", "│  └─ s4", "└─ s5", "   └─ s6",
        "      ├─ s7", "      └─ s8",
    ]  # fmt: skip


def steps_of_drawing(items: int) -> int:
    """Return how many lines of code are run to draw a map of that many items."""
    spans = [span("invoke_workflow p", None, 0, 9, id="top"), span("step m", "top", 0, 9, id="m")]
    for n in range(items):
        spans += [
            span("step m", "m", 0, 9, id=f"i{n}", ours={"step": f"m[{n}]"}),
            span("execute_tool m", f"i{n}", 0, 9, id=f"a{n}"),
        ]
    seen = 0

    def traced(frame: FrameType, event: str, _given: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        return traced if frame.f_code.co_filename == drawing.__file__ else None

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        span_tree({**TRACE, "spans": spans}, width=92, now=at(9))
    finally:
        sys.settrace(before)
    return seen


def test_drawing_takes_as_many_steps_as_there_are_spans() -> None:
    few, many = steps_of_drawing(100), steps_of_drawing(400)
    assert many < 5 * few


def test_a_span_that_goes_on_is_drawn_until_now() -> None:
    trace = {**TRACE, "spans": [span("invoke_workflow p", None, 0, None)]}
    assert "goes on" in span_tree(trace, width=80, now=at(50))[1].plain


def test_spans_of_one_thread_stand_in_each_other_or_follow_each_other() -> None:
    beside = [
        span("step b", "invoke_workflow report", 5, 70, id="b", ours={"step": "b"}),
        span("step c", "invoke_workflow report", 8, 65, id="c", ours={"step": "c"}),
    ]
    events = chrome_trace({**TRACE, "spans": TRACE["spans"] + beside}, now=at(100))["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    assert len(timed) == len(TRACE["spans"]) + 2
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in timed:
        for other in threads.setdefault((event["pid"], event["tid"]), []):
            first, last = event["ts"], event["ts"] + event["dur"]
            begun, ended = other["ts"], other["ts"] + other["dur"]
            apart = last <= begun or ended <= first
            within = (begun <= first and last <= ended) or (first <= begun and ended <= last)
            assert apart or within, (event["name"], other["name"])
        threads[event["pid"], event["tid"]].append(event)
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "hocket coordinator", "hocket worker", "hocket gateway",
    }  # fmt: skip
