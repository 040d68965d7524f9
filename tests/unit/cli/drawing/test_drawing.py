"""What the terminal shows, as golden text in a fixed width."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.text import Text

from hocket.cli.drawing import amounts, critical_path, decisions, timeline

BEGUN = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)


def at(ms: float) -> str:
    return (BEGUN + timedelta(milliseconds=ms)).isoformat()


def step(
    name: str,
    state: str,
    ready: float,
    started: float | None,
    ended: float | None,
    **more: Any,
) -> dict[str, Any]:
    took = ended - started if started is not None and ended is not None else None
    return {
        "step": name,
        "state": state,
        "attempt": 1,
        "parent": None,
        "ready_at": at(ready),
        "started_at": None if started is None else at(started),
        "finished_at": None if ended is None else at(ended),
        "deadline_at": None,
        "slack_ms": None,
        "duration_ms": took,
        "attempts": (),
        "error": None,
        **more,
    }


RUN = {
    "run_id": "r0123456789abcdef01234567",
    "pipeline": "report",
    "version": 2,
    "status": "succeeded",
    "accepted_at": at(0),
    "deadline_at": at(5000),
    "finished_at": at(1000),
    "duration_ms": 1000.0,
}


def text(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


def test_a_row_shows_state_attempt_time_deadline_slack_and_a_bar_by_time() -> None:
    steps = [
        step("plan", "succeeded", 0, 10, 200, deadline_at=at(1500), slack_ms=1300.0),
        step("sql", "succeeded", 200, 250, 600, deadline_at=at(3000), slack_ms=2400.4),
        step("write", "succeeded", 600, 800, 1000, deadline_at=at(5000), slack_ms=4000.0),
    ]

    assert text(timeline.timeline(RUN, steps, width=80)) == (
        "STEP   STATE      TRY    TIME  DEADLINE   SLACK  0                        1.00 s\n"
        "plan   succeeded    1  190 ms    1.50 s  1.30 s  ███████\n"
        "sql    succeeded    1  350 ms    3.00 s  2.40 s        ·████████████\n"
        "write  succeeded    1  200 ms    5.00 s  4.00 s                    ······███████"
    )


def test_an_earlier_attempt_is_drawn_before_the_one_that_counted() -> None:
    earlier = {
        "attempt": 1,
        "outcome": "timed_out",
        "started_at": at(0),
        "finished_at": at(450),
        "error": {"message": "the attempt took more than 450 ms"},
    }
    steps = [step("sql", "succeeded", 0, 700, 1000, attempt=2, attempts=[earlier])]

    bar = timeline.timeline(RUN, steps, width=80)[1].plain

    assert "░" in bar
    assert bar.index("░") < bar.index("█")
    assert text(timeline.faults(steps)) == (
        "sql attempt 1 timed_out: the attempt took more than 450 ms"
    )


def test_a_step_that_succeeded_when_retried_is_not_told_as_a_fault() -> None:
    busy, final = {"message": "busy"}, {"message": "gone for good"}
    tries = ({"attempt": 1, "outcome": "failed", "error": busy},)
    steps = [
        step("retried", "succeeded", 0, 10, 20, attempts=tries, error=busy),
        step("failed", "failed", 0, 10, 20, attempts=tries, error=busy),
        step("replaced", "succeeded", 0, 10, 20, attempts=tries, error=final),  # by its fallback
    ]

    assert text(timeline.faults(steps)).splitlines() == [
        "retried attempt 1 failed: busy",
        "failed attempt 1 failed: busy",
        "failed failed: busy",
        "replaced attempt 1 failed: busy",
        "replaced succeeded: gone for good",
    ]


def test_a_step_that_failed_by_one_inside_it_is_not_told_again() -> None:
    busy = {"message": "busy"}
    steps = [
        step("all", "failed", 0, None, 20, error=busy),
        step("all[1]", "failed", 0, 10, 20, parent="all", error=busy),
        step("other", "failed", 0, None, 20, error=busy),
    ]

    assert text(timeline.faults(steps)).splitlines() == [
        "all[1] failed: busy",
        "other failed: busy",
    ]


def test_steps_inside_a_step_stand_below_it() -> None:
    steps = [
        step("after", "succeeded", 500, 500, 600),
        step("research", "succeeded", 0, None, 900),
        step("research/read", "succeeded", 10, 10, 300, parent="research"),
    ]

    rows = [line.plain.split("  ")[0:2] for line in timeline.timeline(RUN, steps, width=80)[1:]]

    assert [row[0] or row[1] for row in rows] == ["research", "read", "after"]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_timeline_is_as_wide_as_asked_for(width: int) -> None:
    run = {**RUN, "finished_at": at(125_000), "deadline_at": at(500_000)}
    late = {"deadline_at": at(499_000), "slack_ms": 374_000.0}
    steps = [
        step("a_step_with_quite_a_long_name_1", "succeeded", 0, 10, 125_000, **late),
        step("b", "succeeded", 0, 10, 200, **late),
    ]

    rows = [line.plain for line in timeline.timeline(run, steps, width=width)]

    assert max(map(len, rows)) == width
    assert rows[1].startswith("a_step_with_")
    assert rows[2].split()[:4] == ["b", "succeeded", "1", "190"]
    assert ("DEADLINE" in rows[0], "SLACK" in rows[0]) == (width > 60, width > 60)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_critical_path_and_costs_are_as_wide_as_asked_for(width: int) -> None:
    ms, long = 1_000_000.0, "a_step_with_quite_a_long_name_1"
    piece = {"step": long, "kind": "gateway_queue", "from_ms": 0.0, "ms": ms}
    path = {"by_kind": {"gateway_queue": ms}, "segments": [piece]}
    node = {
        "node": long, "model": "a-model-with-quite-a-long-name", "backend": "gpu/" + 30 * "b",
        "calls": 1, "input_tokens": 1_200_000, "output_tokens": 3_400, "cost_usd": "0.0125",
    }  # fmt: skip
    cost = {**node, "nodes": [node]}

    _, *rows = critical_path.critical_path(path, width=width)
    priced = timeline.costs(cost, width=width)

    assert max(len(row.plain) for row in rows) == width
    assert max(len(row.plain) for row in priced) == min(width, 133)
    assert all(row.plain.endswith(("COST", "$0.0125")) for row in priced)
    assert long in text(timeline.costs(cost))


def test_a_step_in_flight_is_drawn_until_now() -> None:
    run = {**RUN, "status": "running", "finished_at": None, "duration_ms": None}
    steps = [step("plan", "dispatched", 0, None, None)]

    lines = timeline.timeline(run, steps, width=80, now=at(2000))

    assert "2.00 s" in lines[0].plain
    assert lines[1].plain.count("·") > 10


def test_the_summary_says_how_the_run_stood_to_its_deadline() -> None:
    assert text(timeline.summary(RUN)).endswith("in 1.00 s, 4.00 s before its deadline")
    late = {**RUN, "duration_ms": 6500.0, "status": "expired"}
    assert text(timeline.summary(late)).endswith("expired in 6.50 s, 1.50 s after its deadline")


def test_cost_by_node_keeps_every_digit_of_the_money() -> None:
    node = {"model": "m", "backend": "b", "calls": 1, "input_tokens": 1200, "output_tokens": 3}
    cost = {
        "nodes": [
            {**node, "node": "plan", "cost_usd": "0.000001230"},
            {**node, "node": "write", "cost_usd": "12.5"},
        ],
        "calls": 2,
        "input_tokens": 2400,
        "output_tokens": 6,
        "cost_usd": "12.50000123",
    }

    assert text(timeline.costs(cost)) == (
        "NODE   MODEL  BACKEND  CALLS  TOKENS IN  OUT          COST\n"
        "plan   m      b            1      1,200    3   $0.00000123\n"
        "write  m      b            1      1,200    3        $12.50\n"
        "total                      2      2,400    6  $12.50000123"
    )


def test_the_cost_of_a_run_names_what_its_sub_runs_cost() -> None:
    tokens = {"calls": 2, "input_tokens": 20, "output_tokens": 6, "cost_usd": "0.5"}
    sub_run = {**tokens, "node": "ask", "pipeline": "greet", "runs": 1}
    cost = {**tokens, "nodes": [], "tools": [], "sub_runs": [sub_run]}

    assert text(timeline.costs(cost)) == (
        "NODE   MODEL  BACKEND    CALLS  TOKENS IN  OUT   COST\n"
        "ask    greet  1 sub-run      2         20    6  $0.50\n"
        "total                        2         20    6  $0.50"
    )


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "-"),
        (0.0, "0.0 ms"),
        (9.94, "9.9 ms"),
        (83.4, "83 ms"),
        (999.6, "1.00 s"),
        (59_994, "59.99 s"),
        (59_999, "1 min 00 s"),
        (123_000, "2 min 03 s"),
        (3_599_900, "1 h 00 min"),
        (86_399_999, "1 d 00 h"),
        (-250, "-250 ms"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_fits_it(ms: float | None, said: str) -> None:
    assert amounts.duration(ms) == said


def test_a_critical_path_shows_where_the_time_went_and_a_bar_per_step() -> None:
    pieces = [
        ("plan", "queue", 0, 100),
        ("plan", "model", 100, 500),
        ("fetch[3]", "coordinator", 600, 50),
        ("fetch[3]", "execution", 650, 150),
        ("write", "backoff", 800, 100),
        ("write", "execution", 900, 100),
    ]
    path = {
        "by_kind": {
            "model": 500.0,
            "execution": 250.0,
            "queue": 100.0,
            "backoff": 100.0,
            "coordinator": 50.0,
        },
        "segments": [
            {"step": s, "kind": k, "from_ms": float(f), "ms": float(ms)} for s, k, f, ms in pieces
        ],
    }

    assert text(critical_path.critical_path(path, width=80)) == (
        "where the time went: ▓ model 500 ms (50 %), █ execution 250 ms (25 %), "
        "░ queue 100 ms (10 %), ~ backoff 100 ms (10 %), · coordinator 50 ms (5 %)\n"
        "CRITICAL PATH  MOST OF IT    TIME  SHARE  0                               1.00 s\n"
        "plan           model       600 ms   60 %  ░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓\n"
        "fetch[3]       execution   200 ms   20 %                        ··██████\n"
        "write          backoff     200 ms   20 %                                ~~~~████"
    )


def test_a_long_critical_path_draws_the_longest_visits_in_order() -> None:
    segments = [
        {"step": f"l#{n}", "kind": "execution", "from_ms": float(n), "ms": 1.0} for n in range(60)
    ]
    path = {"by_kind": {"execution": 60.0}, "segments": segments}
    lines = critical_path.critical_path(path, width=80)
    assert [line.plain.split()[0] for line in lines[2:-1]] == [f"l#{n}" for n in range(40)]
    assert lines[-1].plain == "and 20 shorter visits, 20 ms in all"


def test_a_run_without_a_path_draws_none() -> None:
    assert critical_path.critical_path(None, width=80) == []


def test_a_call_is_explained_by_its_attempts_and_the_replicas_that_were_looked_at() -> None:
    attempt = {
        "call_id": "r1:draft:1:1:0",
        "kind": "cascade",
        "model": "writer",
        "backend": "gpu",
        "replica": "a",
        "status": "ok",
        "error_code": None,
        "input_tokens": 1_200,
        "output_tokens": 7,
        "cost_usd": "0.002",
        "latency_ms": 83.0,
        "started_at": None,
        "experiment": "next",
        "arm": "canary",
        "decision": {
            "model": "writer",
            "reason": "least load",
            "because": "stage 1 of 2",
            "queue_ms": 12.0,
            "tried": [],
            "candidates": [
                {"backend": "gpu/a", "score": [0, 0.25, 2], "refused": ""},
                {"backend": "gpu/b", "score": [0, 0.5, 2], "refused": "is at its limit of 4"},
            ],
            "left_out": 3,
        },
    }
    lines = [line.plain.rstrip() for line in decisions.explained_lines({"attempts": [attempt]})]
    assert lines == [
        "r1:draft:1:1:0  writer -> gpu/a  ok  cascade  next: arm canary",
        "  83 ms, 1,200 in, 7 out, $0.002, began -",
        "  least load; stage 1 of 2; waited 12 ms",
        "  > gpu/a  score 0 0.25 2",
        "    gpu/b  is at its limit of 4",
        "    and 3 more",
    ]


def test_a_deadline_that_is_paused_is_told() -> None:
    waits = RUN | {"status": "running", "finished_at": None, "duration_ms": None}
    waits |= {"met_deadline": None, "deadline_paused_at": at(2_000)}
    since = amounts.local(at(2_000))
    told = f"running, deadline 5.00 s after its start, paused since {since}"
    assert text(timeline.summary(waits)).endswith(told)
    assert timeline.kept_deadline(waits) == "paused"
    assert "paused" not in text(timeline.summary(waits | {"deadline_paused_at": None}))
    found = [timeline.kept_deadline({"met_deadline": met}) for met in (True, False, None)]
    assert found == ["met", "missed", "-"], "an earlier release does not tell of pauses"


def test_a_run_that_is_held_back_says_at_which_limits() -> None:
    one = {"kind": "concurrency", "key": "zoë", "position": 1_000, "since": at(0)}
    since = amounts.local(at(0))
    assert [
        line.plain for line in timeline.held_back([one, one | {"key": None, "position": 1}])
    ] == [
        f"waits for concurrency, key zoë, position 1,000, since {since}",
        f"waits for concurrency, position 1, since {since}",
    ]


def test_items_that_began_together_are_in_the_order_of_their_numbers() -> None:
    names = ["m", "m[10]", "m[9]", "m[1]", "m[100]/a", "m[100]"]
    template = {"state": "succeeded", "attempt": 1, "ready_at": at(0), "finished_at": at(9)}
    drawn = timeline.timeline(RUN, [template | {"step": name} for name in names], width=120)
    assert [line.plain.split()[0] for line in drawn[1:]] == [
        "m", "m[1]", "m[9]", "m[10]", "m[100]", "m[100]/a"
    ]  # fmt: skip


def test_a_run_that_was_cancelled_before_its_deadline_has_not_missed_it() -> None:
    cancelled = RUN | {"status": "cancelled", "met_deadline": False, "deadline_at": at(2_000)}
    found = [
        timeline.kept_deadline(cancelled | {"finished_at": at(ms)}) for ms in (1_000, 2_000, 2_001)
    ]
    assert found == ["-", "-", "missed"]
