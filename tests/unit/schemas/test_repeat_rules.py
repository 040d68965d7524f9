"""Which repeats of a run are refused before anything runs."""

from typing import Any

import pytest
from pydantic import ValidationError

from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import RunOrigin
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from hocket.schemas.repeats import StepPlace, check_repeat
from hocket.schemas.rest import RerunBody

WAIT = {"type": "signal", "signal": "go"}


def mapping(over: str) -> Plan:
    return compile_pipeline(
        {
            "pipeline": "p",
            "input": {"properties": {"xs": {"type": "array", "default": [1]}}},
            "nodes": {"a": WAIT, "m": {**WAIT, "map": {"over": over}}},
        }
    )


def rerun(plan: Plan, from_step: str, run_input: dict[str, Any]) -> None:
    asked = RunOrigin(run_id="r1", operation="rerun", from_step=from_step)
    place = StepPlace(path=from_step.split("[")[0], role="wait", home="")
    check_repeat(asked, status="failed", from_step=place, plan=plan, version=1, run_input=run_input)


@pytest.mark.parametrize("over", ["input.xs", "{{ input.xs }}", "input.xs[:1]"])
def test_an_item_that_the_map_does_not_have_with_this_input_is_refused(over: str) -> None:
    plan = mapping(over)
    with pytest.raises(InvalidInput, match=r"has 1 items, and `m\[1\]` is of none") as refused:
        rerun(plan, "m[1]", {"xs": ["only"]})
    assert refused.value.info().field == "from_step"
    with pytest.raises(InvalidInput, match="has 1 items"):
        rerun(plan, "m[7]", {})  # the default
    rerun(plan, "m[0]", {"xs": [1]})
    rerun(plan, "m", {"xs": []})


@pytest.mark.parametrize(
    ("over", "run_input"),
    [
        ("nodes.a.output", {}),
        ("input.xs + nodes.a.output", {"xs": [1]}),
        ("input.other", {"xs": [1]}),
        ("input.xs", {"xs": {"$blob": "x"}}),
    ],
)
def test_how_many_items_there_will_be_is_not_always_known(
    over: str, run_input: dict[str, Any]
) -> None:
    rerun(mapping(over), "m[9]", run_input)


@pytest.mark.parametrize("from_step", ["a", "a[3]", "m", "m#1"])
def test_steps_that_are_of_no_map_are_no_items(from_step: str) -> None:
    place = StepPlace(path="a", role="wait", home="")
    asked = RunOrigin(run_id="r1", operation="rerun", from_step=from_step)
    plan = mapping("input.xs")
    check_repeat(asked, status="failed", from_step=place, plan=plan, version=1, run_input={})


def test_every_step_that_a_run_can_have_can_be_named() -> None:
    deep = "x" * MAX_STEP_CHARS
    assert RerunBody(from_step=deep).from_step == deep
    with pytest.raises(ValidationError):
        RerunBody(from_step=deep + "x")
