"""What pages derive from what is stored."""

from typing import Any

import pytest

from hocket.admin.console.views.pipeline_list import MAX_EXAMPLE_DEPTH, example_of
from hocket.admin.console.views.run_page import critical_steps, path_parts
from hocket.schemas.rest import CriticalPath, PathSegment


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


def test_a_step_on_the_path_is_named_once() -> None:
    segments = (_segment("a", "queue", 1), _segment("a", "model", 2), _segment("b", "queue", 1))

    assert critical_steps(CriticalPath(by_kind={}, segments=segments)) == ["a", "b"]


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
