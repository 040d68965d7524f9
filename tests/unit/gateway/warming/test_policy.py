"""What is wanted of a replica because runs were accepted, however far ahead these look."""

from math import inf

from hocket.gateway.core.warming.warm_leases import Level, Startup
from hocket.gateway.core.warming.warm_rule import DriverSpec, WarmRule
from hocket.gateway.warming.policy import MAX_LEASES, MAX_RETAINED_MS, WarmPolicy

NOW_MS = 1_800_000_000_000.0
DAY_MS = 86_400_000.0
IDLE_MS = 300_000.0
LOAD_MS = 1_000.0
RULE = WarmRule(DriverSpec("exec"), startup=Startup(0.0, LOAD_MS), idle_ms=IDLE_MS, forecast=True)


class Cold:
    level = Level.COLD
    startup = RULE.startup


def policy() -> WarmPolicy:
    return WarmPolicy(
        RULE,
        Cold(),  # type: ignore[arg-type]
        last_used_ms=lambda: -inf,
        shared=lambda: False,
        changed=lambda: None,
    )


def test_a_replica_waits_for_the_other_models_of_a_run_for_a_while_only() -> None:
    tried = policy()
    tried.need("a run", NOW_MS, NOW_MS + 90 * DAY_MS, NOW_MS)
    held_ms = MAX_RETAINED_MS + IDLE_MS
    assert tried.wanted(NOW_MS + held_ms - 1).level is Level.READY
    assert tried.wanted(NOW_MS + held_ms).level is Level.COLD


def test_between_two_needs_of_a_run_that_waits_for_days_nothing_is_kept() -> None:
    tried = policy()
    for day in (0, 90, 3, 50):
        at_ms = NOW_MS + day * DAY_MS
        tried.need("a run", at_ms, at_ms, NOW_MS)
    wanted = [tried.wanted(NOW_MS + day * DAY_MS).level for day in (0, 1, 3, 4)]
    assert wanted == [Level.READY, Level.COLD, Level.READY, Level.COLD]


def test_needs_that_follow_each_other_are_one() -> None:
    tried = policy()
    for minute in range(0, 30, 5):
        at_ms = NOW_MS + minute * 60_000
        tried.need("a run", at_ms, at_ms, NOW_MS)
    for minute in range(30):
        assert tried.wanted(NOW_MS + minute * 60_000).level is Level.READY


def test_many_needs_of_far_days_push_none_out_that_is_near() -> None:
    tried = policy()
    for number in range(MAX_LEASES + 10):
        at_ms = NOW_MS + 80 * DAY_MS + number
        tried.need(f"runs of hostile/p{number}", at_ms, at_ms, NOW_MS)
    at_ms = NOW_MS + 60_000
    tried.need("runs of good/p", at_ms, at_ms, NOW_MS)
    assert tried.wanted(at_ms - LOAD_MS).reason == "runs of good/p"


def test_a_need_of_a_far_day_does_not_end_the_forecast() -> None:
    tried = policy()
    gap_ms = 4 * IDLE_MS
    for number in range(8):
        at_ms = NOW_MS + number * gap_ms
        tried.need("runs of good/p", at_ms, at_ms, at_ms)
        far_ms = at_ms + 90 * DAY_MS
        tried.need("runs of hostile/p", far_ms, far_ms, at_ms)
    assert tried.wanted(NOW_MS + 8 * gap_ms - LOAD_MS).reason == "forecast"
