"""The order of arrival, with which slack order is compared."""

from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.type_queue import SPARE_STEPS
from hocket.schemas.messages import Priority
from support.runs.ready_steps import FAR, NOW, order, ready


def full_gate() -> tuple[Gate, list]:  # type: ignore[type-arg]
    gate = Gate(order="arrival")
    gate.types.announced("w1", {"python": 1}, NOW)
    out = [ready(f"first{i}") for i in range(1 + SPARE_STEPS)]
    assert all(gate.offer(step) for step in out)
    return gate, out


def test_steps_go_as_they_came_whatever_their_class_slack_and_tenant() -> None:
    gate, out = full_gate()
    gate.offer(ready("a", latest_start_at_ms=FAR, tenant="t1"))
    gate.offer(ready("b", latest_start_at_ms=NOW + 1, tenant="t2"))
    gate.offer(ready("c", priority=Priority.INTERACTIVE))
    gate.offer(ready("d", latest_feasible_start_at_ms=NOW - 1))
    assert order(gate, out) == ["a", "b", "c", "d"]


def test_a_cancelled_step_leaves_the_row() -> None:
    gate, out = full_gate()
    for name in "abc":
        gate.offer(ready(name))
    assert gate.cancel("b:s:1", NOW) is False
    assert order(gate, out) == ["a", "c"]
    assert not gate.types.loads()["python"].held
