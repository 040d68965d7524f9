"""A trace as the terminal draws it, and as Perfetto reads it."""

from datetime import UTC, datetime, timedelta
from typing import Any

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
