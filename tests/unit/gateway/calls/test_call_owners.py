"""Which calls a cancellation means, and whose word counts."""

import pytest

from hocket.gateway.calls.call_owners import CallOwners
from hocket.schemas.messages import Attribution, StepCancelled


def owners() -> CallOwners:
    made = CallOwners()
    made.add("a1", Attribution(run_id="r", step="a", attempt=1), "secret")
    made.add("a2", Attribution(run_id="r", step="a", attempt=2), None)
    made.add("b1", Attribution(run_id="r", step="b", attempt=1), None)
    made.add("other", Attribution(run_id="r2", step="a", attempt=1), None)
    made.add("of-nobody", Attribution(), None)
    return made


@pytest.mark.parametrize(
    ("cancelled", "meant"),
    [
        ({"run_id": "r", "capability": "secret"}, ["a1", "a2", "b1"]),
        ({"run_id": "r"}, ["a2", "b1"]),
        ({"run_id": "r", "step": "a", "capability": "secret"}, ["a1", "a2"]),
        ({"run_id": "r", "step": "a", "attempt": 1, "capability": "secret"}, ["a1"]),
        ({"run_id": "r", "step": "a", "attempt": 1, "capability": "forged"}, []),
        ({"run_id": "gone"}, []),
    ],
)
def test_a_cancellation_stops_the_calls_of_its_attempts_that_it_may(
    cancelled: dict[str, object], meant: list[str]
) -> None:
    assert owners().calls_of(StepCancelled.model_validate(cancelled)) == meant


def test_a_call_that_has_ended_is_meant_no_more_and_anybody_may_stop_what_is_not_there() -> None:
    made = owners()
    assert not made.may_cancel("a1", None)
    made.remove("a1", Attribution(run_id="r", step="a", attempt=1))
    made.remove("other", Attribution(run_id="r2", step="a", attempt=1))
    assert made.calls_of(StepCancelled(run_id="r", capability="secret")) == ["a2", "b1"]
    assert made.calls_of(StepCancelled(run_id="r2")) == []
    assert made.may_cancel("a1", None)
