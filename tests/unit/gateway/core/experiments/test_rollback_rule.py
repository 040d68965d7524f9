"""When an arm is given up: not for few calls, and not for what nobody knows."""

import pytest

from hocket.gateway.core.experiments.rollback_rule import (
    Rate,
    RollbackRule,
    Seen,
    Tally,
    Window,
    fault_of,
)

RULE = RollbackRule(min_calls=10)
FINE = Rate(0, 1_000)
CONTROL = Seen(FINE, FINE, FINE)


@pytest.mark.parametrize(("calls", "cause"), [(9, None), (10, "errors")])
def test_an_arm_is_judged_from_so_many_calls_on(calls: int, cause: str | None) -> None:
    found = fault_of(RULE, Seen(errors=Rate(calls, calls)), CONTROL)
    assert (found and found[0]) == cause


@pytest.mark.parametrize(
    ("arm", "cause"),
    [
        (Seen(errors=Rate(100, 100)), "errors"),
        (Seen(outcomes=Rate(100, 100)), "outcome"),
        (Seen(slow=Rate(100, 100)), None),
    ],
)
def test_without_a_control_most_may_not_fail_and_nothing_is_slow(
    arm: Seen, cause: str | None
) -> None:
    found = fault_of(RULE, arm, Seen())
    assert (found and found[0]) == cause


def test_what_is_tolerated_may_be_more_than_most() -> None:
    arm = Seen(errors=Rate(80, 100))
    assert fault_of(RollbackRule(errors=0.02, most=0.5), arm, CONTROL) is not None
    assert fault_of(RollbackRule(errors=0.9, most=0.5), arm, CONTROL) is None


def test_a_window_that_becomes_smaller_or_larger_keeps_the_latest() -> None:
    window = Window(4)
    for bad in (True, True, False, False):
        window.add(bad)
    window.resize(3)
    assert window.rate == Rate(1, 3)
    window.resize(5)
    for _ in range(3):
        window.add(True)
    assert window.rate == Rate(3, 5)


def test_the_windows_of_the_control_are_longer_also_with_another_rule() -> None:
    tally = Tally(RollbackRule(window=10), control=False)
    tally.use(RollbackRule(window=20), control=True)
    for _ in range(100):
        tally.called(failed=True, latency_ms=1.0, slow_ms=None)
    assert tally.seen.errors == Rate(80, 80)
