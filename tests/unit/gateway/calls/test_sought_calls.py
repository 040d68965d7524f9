"""What stops a call that is sought at the other gateways, and what does not."""

import pytest

from hocket.gateway.calls.sought_calls import SoughtCalls
from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import Attribution, CallCancelled, CallRequest, StepCancelled
from support.gateway.routing_rig import request

SECRET = "secret"


def sought() -> CallRequest:
    who = Attribution(tenant="ours", run_id="r", step="a", attempt=1)
    return request("c", attribution=who, capability=SECRET)


@pytest.mark.parametrize(
    ("wanted", "stops"),
    [
        (CallCancelled(tenant="ours", call_id="c", capability=SECRET), True),
        (CallCancelled(tenant="ours", call_id="c"), False),
        (CallCancelled(tenant="theirs", call_id="c", capability=SECRET), False),
        (StepCancelled(run_id="r", capability_sha256=hashed(SECRET)), True),
        (StepCancelled(run_id="r", step="b", capability_sha256=hashed(SECRET)), False),
        (StepCancelled(run_id="r"), False),
    ],
)
def test_a_sought_call_is_stopped_by_who_may_stop_it(
    wanted: CallCancelled | StepCancelled, stops: bool
) -> None:
    calls = SoughtCalls()
    twice = [calls.add(sought()) for _ in range(2)]
    if isinstance(wanted, CallCancelled):
        calls.cancel_from_outside(wanted)
    else:
        calls.cancel_attempt(wanted)
    assert [stop.asked for stop in twice] == [stops, stops]


def test_a_call_that_one_of_two_callers_seeks_no_more_is_stopped_for_the_other_alone() -> None:
    calls = SoughtCalls()
    first, second = [calls.add(sought()) for _ in range(2)]
    calls.remove(sought(), first)
    cancelled = CallCancelled(tenant="ours", call_id="c", capability=SECRET)
    calls.cancel_from_outside(cancelled)
    assert (first.asked, second.asked) == (False, True)
    calls.remove(sought(), second)
    calls.cancel_from_outside(cancelled)
    last = calls.add(sought())
    assert not last.asked
