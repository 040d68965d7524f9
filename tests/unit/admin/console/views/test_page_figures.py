"""What pages derive from what is stored."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from hocket.admin.console.rendering import environment
from hocket.admin.console.views.money import day_bars
from hocket.admin.console.views.pipeline_list import MAX_EXAMPLE_DEPTH, example_of
from hocket.admin.console.views.run_page import (
    burn_down,
    critical_waits,
    is_late,
    path_parts,
    queue_ms,
)
from hocket.schemas.rest import CriticalPath, PathSegment, RunDetail, StepDetail


def _segment(step: str, kind: str, ms: float) -> PathSegment:
    return PathSegment(step=step, node=step, attempt=1, kind=kind, from_ms=0, ms=ms, pieces=1)


def test_the_kinds_of_time_lie_side_by_side_and_fill_the_bar() -> None:
    path = CriticalPath(by_kind={"model": 75.0, "queue": 25.0}, segments=())

    parts = path_parts(path)

    assert [(part.kind, part.x, part.width) for part in parts] == [
        ("model", 0.0, 750.0),
        ("queue", 750.0, 250.0),
    ]
    assert path_parts(None) == []


def test_a_step_on_the_path_is_named_once_with_what_only_the_path_knows() -> None:
    kinds = [
        ("a", "queue"),
        ("a", "model"),
        ("b", "backoff"),
        ("b", "execution"),
        ("b", "coordinator"),
    ]
    path = CriticalPath(by_kind={}, segments=tuple(_segment(step, kind, 1) for step, kind in kinds))

    assert critical_waits(path) == {"a": [], "b": [("backoff", 0, 1), ("coordinator", 0, 1)]}
    assert critical_waits(None) == {}


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        (None, None),
        ({"type": "object"}, {}),
        (
            {"properties": {"n": {"type": "integer"}, "s": {"default": "x"}}},
            {"n": 0, "s": "x"},
        ),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a"]),
        ({"examples": [{"q": 1}]}, {"q": 1}),
        ({"type": ["string", "null"]}, None),
        (True, None),
    ],
)
def test_an_input_to_begin_with_follows_the_schema(schema: Any, example: Any) -> None:
    assert example_of(schema) == example


def test_a_schema_without_end_gives_an_example_with_one() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema

    depth, found = 0, example_of(schema)
    while found:
        depth, found = depth + 1, found["again"]

    assert depth == MAX_EXAMPLE_DEPTH + 1


@pytest.mark.parametrize(
    ("ended_s", "now_s", "places", "left_ms"),
    [
        (6, 99, (100.0, 300.0, 600.0, 700.0), 1_000.0),
        (9, 99, (100.0, 300.0, 900.0, 700.0), -2_000.0),
        (None, 5, (100.0, 300.0, 500.0, 700.0), 2_000.0),
        (None, 60, (100.0, 300.0, 1_000.0, 700.0), -53_000.0),
    ],
)
def test_a_step_burns_down_the_time_until_its_deadline(
    ended_s: int | None, now_s: int, places: tuple[float, ...], left_ms: float
) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)

    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else begun + timedelta(seconds=seconds)

    run = RunDetail.model_construct(
        accepted_at=begun, deadline_at=at(10), finished_at=None, deadline_paused_at=None
    )
    step = StepDetail.model_construct(
        role="leaf", type="llm", state="dispatched", ready_at=at(1), dispatched_at=at(2),
        started_at=at(3), finished_at=at(ended_s), deadline_at=at(7),
    )  # fmt: skip
    now = begun + timedelta(seconds=now_s)

    found = burn_down(run, step, now)

    assert found is not None
    assert (found.ready, found.started, found.ended, found.deadline) == places
    assert (found.left_ms, found.is_over) == (left_ms, left_ms < 0)
    assert found.goes_on == (ended_s is None)
    assert burn_down(run, step.model_copy(update={"deadline_at": None}), now) is None
    if ended_s is None:  # its worker has not told yet when it began
        handed_out = burn_down(run, step.model_copy(update={"started_at": None}), now)
        assert handed_out is not None
        assert handed_out.started == 200.0


@pytest.mark.parametrize("kind", ["approval", "signal"])
def test_no_step_is_late_because_someone_is_waited_for(kind: str) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    at = [begun + timedelta(seconds=i) for i in range(100)]
    run = RunDetail.model_construct(
        accepted_at=begun, deadline_at=at[10], finished_at=None, deadline_paused_at=at[1]
    )
    wait = StepDetail.model_construct(
        role="wait", type=kind, state="waiting", ready_at=at[1], dispatched_at=None,
        started_at=None, finished_at=None, deadline_at=at[9],
    )  # fmt: skip
    around = wait.model_copy(update={"role": "graph", "type": "graph", "state": "open"})
    beside = wait.model_copy(update={"role": "leaf", "type": "llm", "state": "backoff"})
    for step in (wait, around, beside):
        assert burn_down(run, step, at[2]) is None
        assert burn_down(run, step, at[60]) is None

    moved = run.model_copy(update={"deadline_paused_at": None, "deadline_at": at[69]})
    answered = wait.model_copy(update={"state": "succeeded", "finished_at": at[60]})
    for step in (answered, around):
        assert burn_down(moved, step, at[61]) is None
    soon = burn_down(moved, answered.model_copy(update={"finished_at": at[3]}), at[61])
    assert soon is not None
    assert (soon.left_ms, soon.goes_on) == (6_000, False)
    late = burn_down(moved, beside, at[61])
    assert late is not None
    assert (late.is_over, late.goes_on) == (True, True)


@pytest.mark.parametrize(
    ("role", "state", "counts"),
    [("leaf", "dispatched", True), ("wait", "waiting", False), ("graph", "open", False)],
)
def test_the_table_of_steps_counts_down_only_what_goes_on(
    role: str, state: str, counts: bool
) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    later = begun + timedelta(seconds=5)
    run = RunDetail.model_construct(
        run_id="r", accepted_at=begun, deadline_at=begun + timedelta(seconds=3), finished_at=None,
        deadline_paused_at=None,
    )  # fmt: skip
    kind = {"leaf": "llm", "wait": "approval"}.get(role, role)
    step = StepDetail.model_construct(
        step="a", role=role, type=kind, state=state, attempt=1, ready_at=begun, deadline_at=later,
    )  # fmt: skip
    table = environment().get_template("run_steps.html")
    html = table.render(
        run=run,
        steps=[step],
        now=begun + timedelta(seconds=8),
        burn_down=burn_down,
        queue_ms=queue_ms,
        step_costs={},
        older=None,
        url=str,
    )
    assert ("data-until" in html) == counts
    assert ("3.00 s late" in html) == counts


@pytest.mark.parametrize(
    ("attempt", "dispatched", "started", "queue"),
    [
        (1, 3, 5, 5.0),
        (3, 1_010, 1_012, 2.0),
        (3, None, 1_012, None),
        (2, 9, 8, 0.0),
        (1, 3, None, None),
    ],
    ids=["first", "third", "earlier-release", "other-clock", "waits"],
)
def test_a_step_was_in_the_queue_only_while_its_last_attempt_waited_for_a_worker(
    attempt: int, dispatched: float | None, started: float | None, queue: float | None
) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)

    def after(ms: float | None) -> datetime | None:
        return None if ms is None else begun + timedelta(milliseconds=ms)

    step = StepDetail.model_construct(
        attempt=attempt, ready_at=begun, dispatched_at=after(dispatched), started_at=after(started)
    )
    assert queue_ms(step) == queue


def test_the_bar_of_the_most_expensive_day_has_the_full_height() -> None:
    spent = {date(2026, 3, 1): (Decimal(4), Decimal(1)), date(2026, 3, 3): (Decimal(8), Decimal(0))}

    bars = day_bars(spent, date(2026, 2, 28), 4)

    assert [(bar.day.day, bar.height, bar.waste_height) for bar in bars] == [
        (28, 0, 0),
        (1, 50, 12.5),
        (2, 0, 0),
        (3, 100, 0),
    ]
    assert [bar.height for bar in day_bars({}, date(2026, 2, 28), 2)] == [0, 0]


def test_an_open_run_is_late_only_while_its_deadline_is_not_paused() -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    run = RunDetail(
        run_id="r" + "0" * 24,
        tenant="t",
        pipeline="p",
        version=1,
        status="running",
        priority="standard",
        accepted_at=long_ago,
        deadline_at=long_ago + timedelta(seconds=3),
        spent_usd=Decimal(0),
        input={},
    )
    assert is_late(run)
    assert not is_late(run.model_copy(update={"deadline_paused_at": long_ago}))
    ended = {"finished_at": long_ago, "duration_ms": 1.0}
    assert is_late(run.model_copy(update=ended | {"met_deadline": False}))
    assert not is_late(run.model_copy(update=ended | {"met_deadline": True}))


def test_a_run_that_was_cancelled_before_its_deadline_is_not_late() -> None:
    accepted = datetime(2020, 1, 1, tzinfo=UTC)
    run = RunDetail(
        run_id="r" + "0" * 24,
        tenant="t",
        pipeline="p",
        version=1,
        status="cancelled",
        priority="standard",
        accepted_at=accepted,
        deadline_at=accepted + timedelta(seconds=3),
        finished_at=accepted + timedelta(seconds=3),
        met_deadline=False,
        spent_usd=Decimal(0),
        input={},
    )
    assert not is_late(run)
    assert is_late(run.model_copy(update={"finished_at": accepted + timedelta(seconds=4)}))
