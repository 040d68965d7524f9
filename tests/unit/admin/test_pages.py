"""Ids and cursors of a step whose key is as long as keys may be."""

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter

from hocket.admin.calls.endpoints import CallId
from hocket.admin.console.run.call import CallId as ShownCallId
from hocket.admin.logs.endpoints import AfterLine
from hocket.admin.logs.reads import _cursor
from hocket.admin.pages import After, cursor
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.ids import attempt_id, call_of

LATE = datetime(5000, 1, 1, tzinfo=UTC)
LONGEST = "k" * MAX_STEP_CHARS
CALL = f"{attempt_id('r' + '1' * 24, LONGEST, 2**31 - 1)}:{2**31 - 1}:{2**31 - 1}"
REQUEST = f"{CALL}:t99:r999:h#{'0' * 16}"


def test_a_call_of_such_a_step_can_be_named() -> None:
    assert call_of(REQUEST) == CALL
    for known in (CallId, ShownCallId):
        assert TypeAdapter(known).validate_python(REQUEST) == REQUEST


@pytest.mark.parametrize("identifier", [LONGEST, REQUEST], ids=["step", "call"])
def test_a_list_continues_after_it(identifier: str) -> None:
    after = cursor(LATE, identifier)
    assert TypeAdapter(After).validate_python(after) == after


def test_the_lines_continue_after_one_of_such_a_step() -> None:
    numbers = dict.fromkeys(("attempt", "delivery", "number"), 10**9 - 1)
    row = {"at": LATE, "step": LONGEST, **numbers}
    after = _cursor(row)
    assert TypeAdapter(AfterLine).validate_python(after) == after
