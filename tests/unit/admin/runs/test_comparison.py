"""Two runs side by side: what counts as a difference."""

from dataclasses import replace
from decimal import Decimal

from hocket.admin.runs.comparison import NodeSide, differences, side_by_side

NODE = NodeSide(
    steps=3,
    succeeded=3,
    failed=0,
    state="succeeded",
    at_ms=0.0,
    ran_ms=5.0,
    input="i",
    output="o",
    cost=Decimal(0),
)
TOO_LONG = replace(NODE, input=None, output=None)
"""The same node of a run with so many steps that their values are not read."""


def test_values_that_were_read_of_one_run_only_are_no_difference() -> None:
    assert differences(NODE, TOO_LONG) == ()
    assert differences(TOO_LONG, NODE) == ()
    assert not side_by_side({"a": NODE}, {"a": TOO_LONG})[0].first


def test_other_differences_of_such_a_run_are_found() -> None:
    assert differences(NODE, replace(TOO_LONG, steps=4, succeeded=4)) == ("steps",)
    assert differences(NODE, replace(TOO_LONG, state="failed")) == ("state",)
    assert differences(NODE, replace(TOO_LONG, succeeded=2, failed=1)) == ("state",)
    assert differences(NODE, replace(NODE, output="p")) == ("output",)
