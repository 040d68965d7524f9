"""A breaker's states: when it opens, when it lets one call try, when it closes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.gateway.core.calls.outcomes import outcome_of
from hocket.gateway.core.errors import DeadlinePassed, ModelUnknown
from hocket.gateway.core.routing.breaker import NEVER, Breaker, BreakerRule, BreakerState, Outcome
from hocket.schemas.errors import ErrorClass, HocketError

RULE = BreakerRule(
    window_ms=1_000, min_calls=10, failures_in_a_row=3, open_ms=400, max_open_ms=1_000
)


def breaker(rule: BreakerRule = RULE, dice: float = 0.5) -> Breaker:
    return Breaker(rule, lambda _: dice)


def ends(of: Breaker, *outcomes: Outcome, at: float = 0.0) -> None:
    for outcome in outcomes:
        of.began(at)
        of.ended(outcome, at, began_ms=at)


def opened(at: float = 0.0) -> Breaker:
    made = breaker()
    ends(made, *[Outcome.FAILED] * 3, at=at)
    return made


def test_failures_in_a_row_open_it() -> None:
    made = breaker()
    ends(made, Outcome.FAILED, Outcome.FAILED)
    assert made.admits(0)
    ends(made, Outcome.FAILED)
    assert (made.state, made.admits(0)) == (BreakerState.OPEN, False)


def test_a_success_in_between_starts_the_row_again() -> None:
    made = breaker()
    ends(made, Outcome.FAILED, Outcome.FAILED, Outcome.OK, Outcome.FAILED, Outcome.FAILED)
    assert made.state is BreakerState.CLOSED


def test_the_rate_of_failures_opens_it_from_enough_calls_on() -> None:
    made = breaker()
    ends(made, *[Outcome.OK, Outcome.FAILED] * 4, Outcome.OK)
    assert made.state is BreakerState.CLOSED
    ends(made, Outcome.FAILED)
    assert made.state is BreakerState.OPEN


def test_failures_beyond_the_window_are_forgotten() -> None:
    made = breaker()
    ends(made, *[Outcome.OK, Outcome.FAILED] * 4, at=0.0)
    ends(made, Outcome.OK, Outcome.FAILED, at=1_101.0)
    assert made.state is BreakerState.CLOSED


def test_the_rate_of_slow_calls_opens_it() -> None:
    made = breaker()
    ends(made, *[Outcome.SLOW] * 7, *[Outcome.OK] * 2)
    assert made.state is BreakerState.CLOSED
    ends(made, Outcome.SLOW)
    assert made.state is BreakerState.OPEN


def test_calls_that_hang_open_it_before_they_end() -> None:
    made = breaker()
    made.overdue(9, 9, 0)
    assert made.state is BreakerState.CLOSED
    made.overdue(10, 12, 0)
    assert made.state is BreakerState.OPEN


def test_calls_that_were_cut_short_say_nothing() -> None:
    made = breaker()
    ends(made, *[Outcome.NOTHING] * 50)
    assert made.state is BreakerState.CLOSED


def test_one_call_tries_it_when_its_time_is_over_and_a_success_closes_it() -> None:
    made = opened()
    assert [made.admits(at) for at in (399, 400)] == [False, True]
    made.began(400)
    assert (made.state, made.admits(401)) == (BreakerState.HALF_OPEN, False)
    made.ended(Outcome.OK, 410, began_ms=400)
    assert (made.state, made.admits(410)) == (BreakerState.CLOSED, True)


def test_a_trial_that_fails_doubles_the_time_up_to_a_bound() -> None:
    made = opened()
    pauses = []
    for _ in range(4):
        at = made.retry_at_ms
        made.began(at)
        made.ended(Outcome.FAILED, at, began_ms=at)
        pauses.append(made.retry_at_ms - at)
    assert pauses == [800, 1_000, 1_000, 1_000]


def test_one_that_closed_again_opens_for_the_shortest_time_first() -> None:
    made = opened()
    for outcome in (Outcome.FAILED, Outcome.FAILED, Outcome.OK):
        ends(made, outcome, at=made.retry_at_ms)
    assert made.state is BreakerState.CLOSED
    ends(made, *[Outcome.FAILED] * 3, at=9_000)
    assert made.retry_at_ms == 9_000 + RULE.open_ms


def test_a_call_from_before_it_opened_does_not_decide_the_trial() -> None:
    made = opened()
    made.began(400)
    made.ended(Outcome.OK, 405, began_ms=-50)
    assert made.state is BreakerState.HALF_OPEN


def test_a_trial_that_hangs_lets_another_one_try_later() -> None:
    made = opened()
    made.began(400)
    assert [made.admits(at) for at in (799, 800)] == [False, True]


def test_trials_that_take_longer_than_the_time_between_them_close_it_all_the_same() -> None:
    made, trials = opened(), []
    for _ in range(5):
        trials.append(made.retry_at_ms)
        made.began(trials[-1])
    made.ended(Outcome.OK, trials[0] + 1_900, began_ms=trials[0])
    assert made.state is BreakerState.CLOSED


def test_of_trials_in_flight_the_first_to_fail_opens_it_again() -> None:
    made = opened()
    made.began(400)
    made.began(800)
    made.ended(Outcome.FAILED, 900, began_ms=400)
    assert (made.state, made.retry_at_ms) == (BreakerState.OPEN, 1_700)
    made.ended(Outcome.FAILED, 950, began_ms=800)
    assert made.retry_at_ms == 1_700


def test_a_trial_that_says_nothing_lets_the_next_call_try() -> None:
    made = opened()
    made.began(400)
    made.ended(Outcome.NOTHING, 410, began_ms=400)
    assert made.admits(410)


@pytest.mark.parametrize(("dice", "pause_ms"), [(0.0, 300.0), (0.5, 400.0), (0.99, 498.0)])
def test_the_time_it_stays_open_is_jittered_by_a_quarter(dice: float, pause_ms: float) -> None:
    made = breaker(dice=dice)
    ends(made, *[Outcome.FAILED] * 3)
    assert made.retry_at_ms == pytest.approx(pause_ms)


def test_one_that_is_off_stays_closed() -> None:
    made = breaker(NEVER)
    ends(made, *[Outcome.FAILED] * 99)
    made.overdue(99, 99, 0)
    assert made.admits(0)


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.floats(0, 300), st.booleans()), max_size=80))
def test_whatever_happened_a_server_that_works_again_is_in_use_within_two_bounds(
    events: list[tuple[Outcome, float, bool]],
) -> None:
    made, now = breaker(), 0.0
    for outcome, later, is_overdue in events:
        now += later
        if is_overdue:
            made.overdue(20, 20, now)
        elif made.admits(now):
            ends(made, outcome, at=now)
    recovered = now
    while not made.admits(now):
        assert made.retry_at_ms > now
        now = made.retry_at_ms
    ends(made, Outcome.OK, at=now)
    assert made.state is BreakerState.CLOSED
    assert now - recovered <= 1.25 * RULE.max_open_ms


def class_of(code: str) -> HocketError:
    """Return an error whose class a test names."""

    class Scripted(HocketError):
        """No luck."""

        error_class = ErrorClass(code)

    return Scripted()


@pytest.mark.parametrize(
    ("error", "latency_ms", "slow_ms", "expected"),
    [
        (None, 10, None, Outcome.OK),
        (None, 99, 100, Outcome.OK),
        (None, 100, 100, Outcome.SLOW),
        ("cancelled", 10, 100, Outcome.NOTHING),
        ("rate_limited", 10, 100, Outcome.NOTHING),
        ("invalid", 10, 100, Outcome.OK),
        ("transient", 10, 100, Outcome.FAILED),
        ("permanent", 10, 100, Outcome.FAILED),
        ("timeout", 99, 100, Outcome.NOTHING),
        ("timeout", 100, 100, Outcome.FAILED),
        ("timeout", 999, None, Outcome.NOTHING),
        ("timeout", 1_000, None, Outcome.FAILED),
    ],
)
def test_an_end_tells_of_the_server_or_of_the_call(
    error: str | None, latency_ms: float, slow_ms: float | None, expected: Outcome
) -> None:
    assert outcome_of(class_of(error) if error else None, latency_ms, slow_ms) is expected


def test_what_never_reached_a_server_is_not_its_fault() -> None:
    assert outcome_of(ModelUnknown(model="m", known=""), 0, None) is Outcome.OK
    assert outcome_of(DeadlinePassed(late_ms=1), 0, None) is Outcome.NOTHING
