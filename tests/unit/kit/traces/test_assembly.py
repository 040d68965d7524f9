"""A trace is made of the rows of its run; every span stands where it belongs."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from hocket.kit.traces.assembly import traces_of
from hocket.kit.traces.reads import TraceRows
from hocket.schemas import ids
from hocket.schemas.tracing.spans import Span

T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)
RUN = "r" + "1" * 24
CHILD = "r" + "2" * 24
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def at(ms: float) -> datetime:
    return T0 + timedelta(milliseconds=ms)


def run(run_id: str = RUN, **more: Any) -> dict[str, Any]:
    return {
        "run_id": run_id, "root": RUN, "tenant": "acme", "pipeline": "p", "version": 2,
        "status": "succeeded", "priority": "standard", "accepted_at": T0, "deadline_at": at(9e3),
        "finished_at": at(100), "spent_usd": Decimal("0.25"), "traceparent": None, "labels": None,
        "error_code": None, "error_message": None, "parent_run": None, "parent_step": None, **more,
    }  # fmt: skip


def step(key: str, **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN, "key": key, "path": key.split("[")[0], "type": "python", "role": "leaf",
        "parent": None, "state": "succeeded", "attempt": 1, "ready_at": at(1), "queued_at": None,
        "dispatched_at": at(2), "started_at": at(5), "finished_at": at(50), "took_ms": 40.0,
        "worker": "w", "error_code": None, "error_message": None, "source": None, **more,
    }  # fmt: skip


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN, "call_id": call_id, "kind": "call", "step": "a", "attempt": 1, "model": "m",
        "backend": "b", "replica": "", "status": "ok", "error_code": None, "input_tokens": 3,
        "output_tokens": 2, "cached_tokens": 0, "cache_write_tokens": 0, "cost_usd": Decimal("0.1"),
        "estimated": False, "started_at": at(10), "latency_ms": 20.0, "experiment": None,
        "arm": None, "provider": "openai", "target": "gpt-4o", "operation": "chat",
        "queue_ms": 0.0, **more,
    }  # fmt: skip


def spans_of(**rows: Any) -> tuple[Span, ...]:
    empty: dict[str, Any] = {"runs": (run(),), "steps": (), "attempts": (), "calls": ()}
    (trace,) = traces_of(TraceRows(**{**empty, **rows}))
    return trace.spans


def tree(spans: tuple[Span, ...]) -> list[str]:
    """The names of spans, indented below their parents."""
    depth: dict[str | None, int] = {}
    lines = []
    for span in spans:
        depth[span.span_id] = depth.get(span.parent_id, -1) + 1
        lines.append("  " * depth[span.span_id] + span.name)
    return lines


def test_a_call_stands_below_its_attempt_and_its_step() -> None:
    spans = spans_of(steps=(step("a"),), calls=(call(f"{RUN}:a:1:1:1", queue_ms=4.0),))
    assert tree(spans) == [
        "invoke_workflow p",
        "  step a",
        "    queue",
        "    execute_tool a",
        "      call m",
        "        queue",
        "        chat gpt-4o",
    ]
    begun = round(T0.timestamp() * 1e6)
    times = [(s.started_at_us - begun, (s.ended_at_us or 0) - begun) for s in spans]
    assert times == [
        (0, 100_000), (1_000, 50_000), (1_000, 5_000), (5_000, 45_000), (6_000, 30_000),
        (6_000, 10_000), (10_000, 30_000),
    ]  # fmt: skip
    assert {span.trace_id for span in spans} == {ids.trace_id(RUN)}
    request = spans[-1].attributes
    assert (request["gen_ai.provider.name"], request["gen_ai.usage.input_tokens"]) == ("openai", 3)


def test_requests_of_one_call_stand_side_by_side_and_the_good_one_counts() -> None:
    made = f"{RUN}:a:1:1:1"
    bad = call(made, status="error", error_code="backend_failed", latency_ms=5.0)
    spans = spans_of(steps=(step("a"),), calls=(bad, call(f"{made}:r1", started_at=at(16))))
    assert tree(spans)[-3:] == ["      call m", "        chat gpt-4o", "        chat gpt-4o"]
    whole, first, second = spans[-3:]
    assert [s.status for s in (whole, first, second)] == ["unset", "error", "unset"]
    assert first.attributes["error.type"] == "backend_failed"
    assert whole.attributes["hocket.cost_usd"] == 0.2


def test_a_failed_attempt_stands_before_the_one_that_gave_the_result() -> None:
    failed = {
        "run_id": RUN, "key": "a", "attempt": 1, "outcome": "failed", "dispatched_at": at(2),
        "started_at": at(3), "finished_at": at(9), "worker": "w", "error_code": "transient",
        "error_message": "it broke",
    }  # fmt: skip
    spans = spans_of(
        steps=(step("a", attempt=2, dispatched_at=at(20), started_at=at(21)),), attempts=(failed,)
    )
    tried = [span for span in spans if span.name == "execute_tool a"]
    assert [(s.attributes["hocket.attempt"], s.status, s.message) for s in tried] == [
        (1, "error", "it broke"),
        (2, "unset", ""),
    ]
    assert len({span.span_id for span in spans}) == len(spans)


def test_the_last_attempt_of_a_failed_step_failed() -> None:
    failed = step("a", state="failed", error_code="timeout", error_message="too slow")
    attempt = spans_of(steps=(failed,))[-1]
    assert (attempt.name, attempt.status, attempt.message) == (
        "execute_tool a",
        "error",
        "too slow",
    )
    assert attempt.attributes["error.type"] == "timeout"


@pytest.mark.parametrize(("told_ms", "begun_us"), [("12.5", 32_500), ("1e400", 5_000)])
def test_a_query_stands_at_the_end_of_its_attempt_whatever_its_node_says(
    told_ms: str, begun_us: int
) -> None:
    spans = spans_of(steps=(step("a", type="sql", sql_ms=told_ms, sql_rows="7"),))
    assert tree(spans)[2:] == ["    queue", "    process a", "      SELECT"]
    query, epoch = spans[-1], round(T0.timestamp() * 1e6)
    assert (query.started_at_us - epoch, (query.ended_at_us or 0) - epoch) == (begun_us, 45_000)
    assert query.attributes["db.response.returned_rows"] == 7


def test_items_of_a_map_stand_below_it() -> None:
    steps = (
        step("a", role="map", dispatched_at=None, started_at=None),
        step("a[0]", parent="a"),
    )
    assert tree(spans_of(steps=steps)) == [
        "invoke_workflow p", "  step a", "    step a", "      queue", "      execute_tool a",
    ]  # fmt: skip


def test_a_sub_run_stands_below_its_step_in_the_trace_of_the_caller() -> None:
    spans = spans_of(
        runs=(
            run(traceparent=CALLER),
            run(CHILD, pipeline="q", parent_run=RUN, parent_step="a", accepted_at=at(1)),
        ),
        steps=(step("a", role="subrun"), step("x", run_id=CHILD)),
    )
    assert tree(spans)[:4] == [
        "invoke_workflow p",
        "  step a",
        "    invoke_workflow q",
        "      step x",
    ]
    assert {span.trace_id for span in spans} == {CALLER.split("-")[1]}
    assert spans[0].parent_id == CALLER.split("-")[2]


def test_what_goes_on_has_no_end() -> None:
    going = step("a", state="dispatched", started_at=None, finished_at=None, took_ms=None)
    spans = spans_of(runs=(run(status="running", finished_at=None),), steps=(going,))
    assert "hocket.run.met_deadline" not in spans[0].attributes
    assert tree(spans) == ["invoke_workflow p", "  step a", "    queue", "    execute_tool a"]
    *_, queue, attempt = spans
    assert queue.ended_at_us == attempt.started_at_us
    assert [span.ended_at_us for span in (*spans[:2], attempt)] == [None] * 3


def test_an_attempt_whose_start_is_not_known_does_not_wait_while_it_works() -> None:
    cancelled = {
        "run_id": RUN, "key": "a", "attempt": 1, "outcome": "cancelled", "dispatched_at": at(2),
        "started_at": None, "finished_at": at(90), "worker": None, "error_code": None,
        "error_message": None,
    }  # fmt: skip
    again = {**cancelled, "attempt": 2, "dispatched_at": at(95), "finished_at": at(99)}
    spans = spans_of(steps=(step("a", attempt=2),), attempts=(cancelled, again))
    begun = round(T0.timestamp() * 1e6)
    times = [(s.name, s.started_at_us - begun, (s.ended_at_us or 0) - begun) for s in spans[2:]]
    assert times == [
        ("queue", 1_000, 2_000),
        ("execute_tool a", 2_000, 90_000),
        ("execute_tool a", 95_000, 99_000),
    ]


def test_a_call_of_the_http_door_stands_below_the_run() -> None:
    spans = spans_of(calls=(call("http:1", step=None, attempt=None),))
    assert tree(spans) == ["invoke_workflow p", "  call m", "    chat gpt-4o"]


def test_a_sub_run_whose_step_is_not_kept_stands_below_the_run_at_the_top() -> None:
    child = run(CHILD, pipeline="q", parent_run=RUN, parent_step="gone", accepted_at=at(1))
    spans = spans_of(runs=(run(), child), steps=(step("x", run_id=CHILD),))
    assert [span.name for span in spans][:3] == [
        "invoke_workflow p",
        "invoke_workflow q",
        "step x",
    ]
    assert spans[1].parent_id == spans[0].span_id


def test_calls_whose_ids_their_caller_made_like_those_of_requests_stay_apart() -> None:
    made = [f"http:acme:{ids.given_call_id(f'job:r{n}')}" for n in (1, 2)]
    calls = [call(one, step=None, attempt=None) for one in (*made, f"{made[0]}:r1")]
    found = [s for s in spans_of(calls=tuple(calls)) if s.name == "call m"]
    assert [span.attributes["hocket.call.id"] for span in found] == made


def test_a_span_whose_parent_is_not_kept_stands_below_its_run() -> None:
    assert tree(spans_of(calls=(call(f"{RUN}:gone:1:1:1", step="gone"),)))[1] == "  call m"
