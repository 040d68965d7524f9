"""Who passes a gate, who waits on and who is refused."""

from typing import Any

import pytest

from hocket.coordinator.core.flow.decisions import MAX_AT_ONCE, Passed, Waiting, decide, room

NOW_MS = 1_000_000.0


def waiting(*names: str, rule: dict[str, Any], every_ms: float = 100.0) -> list[Waiting]:
    """Return runs that were accepted one after the other, the last one now."""
    first_ms = NOW_MS - every_ms * (len(names) - 1)
    moments = [first_ms + every_ms * n for n in range(len(names))]
    return [
        Waiting(name, 0, at_ms, at_ms, rule) for name, at_ms in zip(names, moments, strict=True)
    ]


def names(found: list[Any]) -> list[str]:
    return [(one[0] if not isinstance(one, Waiting) else one).run_id for one in found]


def test_as_many_pass_as_a_limit_leaves_the_oldest_first() -> None:
    runs = waiting("a", "b", "c", rule={"limit": 3})
    decision = decide("concurrency", runs, Passed(held=1), NOW_MS)
    assert names(decision.passed) == ["a", "b"]
    assert decision.refused == []


def test_nobody_passes_a_limit_that_others_have_used_up() -> None:
    runs = waiting("a", rule={"limit": 2})
    assert decide("concurrency", runs, Passed(held=2), NOW_MS).passed == []
    assert room("concurrency", {"limit": 2}, Passed(held=2), NOW_MS) == 0


def test_a_limit_that_was_lowered_lets_nobody_pass_until_enough_have_ended() -> None:
    assert room("concurrency", {"limit": 1}, Passed(held=5), NOW_MS) == 0


def test_a_version_s_own_limit_holds_for_its_runs() -> None:
    runs = [
        *waiting("old", rule={"limit": 3}),
        *waiting("new", rule={"limit": 1}),
    ]
    decision = decide("concurrency", runs, Passed(held=1), NOW_MS)
    assert names(decision.passed) == ["old"]


def test_a_throttle_lets_as_many_start_as_its_period_has_left_and_says_when_the_next_may() -> None:
    rule = {"limit": 3, "per_s": 10.0}
    runs = waiting("a", "b", "c", rule=rule)
    passed = Passed(starts=(NOW_MS - 9_000, NOW_MS - 2_000))
    decision = decide("throttle", runs, passed, NOW_MS)
    assert names(decision.passed) == ["a"]
    assert decision.next_at_ms == NOW_MS + 1_000


def test_a_start_counts_until_its_period_is_over() -> None:
    rule = {"limit": 1, "per_s": 10.0}
    runs = waiting("a", rule=rule)
    assert decide("throttle", runs, Passed(starts=(NOW_MS - 9_999,)), NOW_MS).passed == []
    decision = decide("throttle", runs, Passed(starts=(NOW_MS - 10_000,)), NOW_MS)
    assert names(decision.passed) == ["a"]


def test_a_rate_refuses_what_is_too_much_and_says_when_to_come_again() -> None:
    runs = waiting("a", "b", rule={"limit": 2, "per_s": 60.0})
    decision = decide("rate_limit", runs, Passed(starts=(NOW_MS - 45_000,)), NOW_MS)
    assert names(decision.passed) == ["a"]
    ((refused, error),) = decision.refused
    assert (refused.run_id, error.code) == ("b", "flow_rate_limited")
    assert "in 15.0 s" in error.message


def test_a_debounce_refuses_all_but_the_newest_which_waits_until_none_came() -> None:
    runs = waiting("a", "b", "c", rule={"wait_s": 2.0})
    decision = decide("debounce", runs, Passed(), NOW_MS)
    assert decision.passed == []
    assert [(one.run_id, error.code) for one, error in decision.refused] == [
        ("a", "flow_debounced"),
        ("b", "flow_debounced"),
    ]
    assert "Run c" in decision.refused[0][1].message
    assert decision.next_at_ms == NOW_MS + 2_000


def test_a_debounce_lets_the_newest_pass_when_none_came_for_long_enough() -> None:
    runs = waiting("a", rule={"wait_s": 2.0})
    assert names(decide("debounce", runs, Passed(), NOW_MS + 2_000).passed) == ["a"]


def test_a_debounce_puts_off_no_longer_than_its_bound() -> None:
    rule = {"wait_s": 2.0, "max_wait_s": 5.0}
    runs = waiting("a", "b", rule=rule, every_ms=4_000.0)
    decision = decide("debounce", runs, Passed(), NOW_MS)
    assert decision.next_at_ms == NOW_MS + 1_000, "5 s after the first one came"
    assert [(one.run_id, since_ms) for one, since_ms in decision.put_off] == [("b", NOW_MS - 4_000)]


def test_a_singleton_skips_what_comes_while_one_is_under_way() -> None:
    runs = waiting("a", "b", rule={"mode": "skip"})
    decision = decide("singleton", runs, Passed(held=1, holder="first"), NOW_MS)
    assert decision.passed == []
    assert [(one.run_id, error.code) for one, error in decision.refused] == [
        ("a", "flow_singleton_skipped"),
        ("b", "flow_singleton_skipped"),
    ]


def test_of_several_that_come_together_a_singleton_takes_the_first() -> None:
    decision = decide("singleton", waiting("a", "b", rule={"mode": "skip"}), Passed(), NOW_MS)
    assert names(decision.passed) == ["a"]
    assert "Run a" in decision.refused[0][1].message


def test_a_replacing_singleton_cancels_who_is_under_way_and_waits_for_its_end() -> None:
    runs = waiting("a", "b", rule={"mode": "cancel"})
    decision = decide("singleton", runs, Passed(held=1, holder="first"), NOW_MS)
    assert decision.passed == []
    assert decision.replaced == [("first", "b")]
    assert [(one.run_id, error.code) for one, error in decision.refused] == [
        ("a", "flow_singleton_replaced")
    ]
    after = decide("singleton", runs[1:], Passed(), NOW_MS)
    assert names(after.passed) == ["b"]


@pytest.mark.parametrize(
    ("kind", "rule"), [("singleton", {"mode": "cancel"}), ("debounce", {"wait_s": 2.0})]
)
def test_of_more_than_are_decided_together_only_the_newest_of_all_passes(
    kind: str, rule: dict[str, Any]
) -> None:
    many = [f"r{number:03d}" for number in range(2 * MAX_AT_ONCE + 50)]
    left, held, started, refused = waiting(*many, rule=rule, every_ms=1.0), "", [], []
    now_ms = NOW_MS + 3_000
    while left:
        passed = Passed(held=bool(held), holder=held)
        read = left[-room(kind, rule, passed, now_ms) :]
        decision = decide(kind, read, passed, now_ms)
        assert decision.replaced == []
        started += names(decision.passed)
        refused += names(decision.refused)
        held = started[0] if started else ""
        left = [one for one in left if one.run_id not in {*started, *refused}]
    assert started == many[-1:]
    assert sorted(refused) == many[:-1]


def test_a_debounce_remembers_the_first_of_more_than_are_decided_together() -> None:
    rule = {"wait_s": 2.0, "max_wait_s": 5.0}
    runs = waiting(*[f"r{n:03d}" for n in range(MAX_AT_ONCE + 1)], rule=rule)
    decision = decide("debounce", runs, Passed(), NOW_MS)
    assert decision.passed == []
    assert [(one.run_id, since_ms) for one, since_ms in decision.put_off] == [
        (runs[-1].run_id, runs[0].since_ms)
    ]


def test_no_more_are_decided_together_than_a_bound() -> None:
    assert room("concurrency", {"limit": 10_000}, Passed(), NOW_MS) == MAX_AT_ONCE


def test_where_nobody_waits_nothing_is_decided() -> None:
    assert decide("debounce", [], Passed(), NOW_MS).next_at_ms is None
