"""Which calls a cancellation means, and whose word counts."""

import pytest

from hocket.gateway.calls.call_owners import CallOwners
from hocket.gateway.core.calls.call_key import CallKey
from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import Attribution, StepCancelled

SHOWN = hashed("secret")
WHO = {
    "a1": Attribution(run_id="r", step="a", attempt=1),
    "a2": Attribution(run_id="r", step="a", attempt=2),
    "b1": Attribution(run_id="r", step="b", attempt=1),
    "other": Attribution(run_id="r2", step="a", attempt=1),
    "of-nobody": Attribution(),
}


def key(name: str) -> CallKey:
    return CallKey("default", name, WHO[name].run_id, WHO[name].step)


def owners() -> CallOwners:
    made = CallOwners()
    for name, who in WHO.items():
        made.add(key(name), who, "secret" if name == "a1" else None)
    return made


def named(found: list[CallKey]) -> list[str]:
    return [one.call_id for one in found]


@pytest.mark.parametrize(
    ("cancelled", "meant"),
    [
        ({"run_id": "r", "capability_sha256": SHOWN}, ["a1", "a2", "b1"]),
        ({"run_id": "r"}, ["a2", "b1"]),
        ({"run_id": "r", "step": "a", "capability_sha256": SHOWN}, ["a1", "a2"]),
        ({"run_id": "r", "step": "a", "attempt": 1, "capability_sha256": SHOWN}, ["a1"]),
        ({"run_id": "r", "step": "a", "attempt": 1, "capability_sha256": "secret"}, []),
        ({"run_id": "gone"}, []),
    ],
)
def test_a_cancellation_stops_the_calls_of_its_attempts_that_it_may(
    cancelled: dict[str, object], meant: list[str]
) -> None:
    assert named(owners().calls_of(StepCancelled.model_validate(cancelled))) == meant


def test_a_call_is_stopped_by_its_id_with_its_capability_until_it_has_ended() -> None:
    made = owners()
    assert made.calls_with("default", "a1", None) == []
    assert made.calls_with("default", "a1", "secret") == [key("a1")]
    assert made.calls_with("other", "a1", "secret") == []
    for name in ("a1", "other"):
        made.remove(key(name), WHO[name])
    assert named(made.calls_of(StepCancelled(run_id="r", capability_sha256=SHOWN))) == ["a2", "b1"]
    assert made.calls_of(StepCancelled(run_id="r2")) == []
    assert made.calls_with("default", "a1", "secret") == []
