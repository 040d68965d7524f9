"""What pages derive from what is stored."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from hocket.admin.console.views.money import day_bars
from hocket.admin.console.views.pipeline_list import MAX_EXAMPLE_DEPTH, example_of
from hocket.admin.console.views.run_page import burn_down, critical_waits, path_parts
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

    run = RunDetail.model_construct(accepted_at=begun, deadline_at=at(10), finished_at=None)
    step = StepDetail.model_construct(
        state="dispatched", ready_at=at(1), dispatched_at=at(2), started_at=at(3),
        finished_at=at(ended_s), deadline_at=at(7),
    )  # fmt: skip
    now = begun + timedelta(seconds=now_s)

    found = burn_down(run, step, now)

    assert found is not None
    assert (found.ready, found.started, found.ended, found.deadline) == places
    assert (found.left_ms, found.is_over) == (left_ms, left_ms < 0)
    assert burn_down(run, step.model_copy(update={"deadline_at": None}), now) is None
    if ended_s is None:  # its worker has not told yet when it began
        handed_out = burn_down(run, step.model_copy(update={"started_at": None}), now)
        assert handed_out is not None
        assert handed_out.started == 200.0


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
