"""Which messages are calls that the gateway makes."""

import pytest
from pydantic import TypeAdapter

from hocket.gateway.api.call_requests import MAX_ID_BYTES, checked
from hocket.gateway.core.errors import CallMalformed
from hocket.schemas import ids
from hocket.schemas.checks.bounded import StepKey
from hocket.schemas.messages import CallRequest

LONGEST_END = ":t99:r999:h#0123456789abcdef"
"""What tells the requests of a call apart, at its longest."""


def with_id(call_id: str) -> bytes:
    return CallRequest(call_id=call_id, model="m", deadline_at_ms=2e14).model_dump_json().encode()


def test_a_step_in_graphs_as_deep_as_a_pipeline_may_have_them_can_call_a_model() -> None:
    step = "/".join(["n" * 63 + "[99]#10"] * 31)
    call_id = ids.call_id(ids.attempt_id(ids.run_id("acme", "k"), step, 10), 10, 1_000)
    assert checked(with_id(call_id)).call_id == call_id


@pytest.mark.parametrize("end", ["", "é"], ids=["ascii", "other"])
def test_the_id_of_a_call_is_as_long_as_the_ids_of_its_requests_can_be_stored(end: str) -> None:
    longest = "c" * (MAX_ID_BYTES - len(end.encode())) + end
    request = checked(with_id(longest))
    assert ids.call_of(request.call_id + LONGEST_END) == longest
    TypeAdapter(StepKey).validate_python(longest + LONGEST_END)
    for call_id in ("", longest + "c"):
        with pytest.raises(CallMalformed, match=r"`call_id`: it is not 1 to \d+ bytes"):
            checked(with_id(call_id))
