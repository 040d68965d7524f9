"""The runs of a play wait at the limits of their pipelines, and end there, as on the platform."""

from typing import Any

import pytest

from hocket.testing import Play, Played

ECHO = "hocket.workers.builtin:echo"
TAKES_MS = 1_000


def played(flow: dict[str, Any], over: str = "[1, 2, 3, 4]", *, slo_ms: int = 600_000) -> Played:
    """Start a sub-run of a limited pipeline for each item; each takes a second."""
    step = {"type": "python", "handler": ECHO, "with": {"value": "{{ input.n }}"}}
    limited = {
        "pipeline": "limited",
        "slo_ms": slo_ms,
        "flow": flow,
        "nodes": {"a": step},
        "output": "{{ nodes.a.output.value }}",
    }
    node = {
        "type": "pipeline",
        "pipeline": "limited",
        "with": {"n": "{{ item }}"},
        "map": {"over": over, "on_item_error": "skip"},
    }
    outer = {
        "pipeline": "outer",
        "slo_ms": slo_ms,
        "nodes": {"each": node},
        "output": "{{ nodes.each.output }}",
    }
    play = Play(outer, pipelines=[limited])
    play.takes("a", TAKES_MS, attempt=None)
    return play.run()


def codes(one: Played) -> list[str | None]:
    """Return the codes with which the items failed; None for those that succeeded."""
    steps = [one.steps[f"each[{number}]"] for number in range(4)]
    return [None if step.error is None else step.error.code for step in steps]


def test_a_singleton_lets_the_first_run_and_skips_the_others() -> None:
    one = played({"singleton": {"mode": "skip"}})
    assert one.output == [1, None, None, None]
    assert codes(one) == [None] + ["flow_singleton_skipped"] * 3
    assert one.took_ms == pytest.approx(TAKES_MS, abs=1)


def test_a_singleton_that_cancels_runs_the_newest() -> None:
    one = played({"singleton": {"mode": "cancel"}})
    assert one.output == [None, None, None, 4]
    assert codes(one) == ["cancelled"] + ["flow_singleton_replaced"] * 2 + [None]


def test_concurrency_lets_others_wait_in_their_order() -> None:
    one = played({"concurrency": {"limit": 2}})
    assert one.output == [1, 2, 3, 4]
    assert one.took_ms == pytest.approx(2 * TAKES_MS, abs=1)
    assert one.steps["each[1]"].ended_ms == pytest.approx(TAKES_MS, abs=1)
    assert one.steps["each[2]"].ended_ms == pytest.approx(2 * TAKES_MS, abs=1)


def test_runs_of_different_keys_do_not_wait_for_each_other() -> None:
    one = played({"concurrency": {"limit": 1, "key": "{{ input.n }}"}}, "[1, 2, 1, 2]")
    assert one.took_ms == pytest.approx(2 * TAKES_MS, abs=1)


def test_a_throttle_lets_runs_start_as_time_passes() -> None:
    one = played({"throttle": {"limit": 1, "per_s": 30}})
    assert one.output == [1, 2, 3, 4]
    assert one.took_ms == pytest.approx(3 * 30_000 + TAKES_MS, abs=1)


def test_a_rate_limit_refuses_those_beyond_it() -> None:
    one = played({"rate_limit": {"limit": 3, "per_s": 30}})
    assert codes(one) == [None] * 3 + ["flow_rate_limited"]


def test_a_debounce_starts_the_newest_when_no_other_has_come_for_a_while() -> None:
    one = played({"debounce": {"wait_s": 5}})
    assert one.output == [None, None, None, 4]
    assert codes(one) == ["flow_debounced"] * 3 + [None]
    assert one.took_ms == pytest.approx(5_000 + TAKES_MS, abs=1)


def test_a_run_passes_one_limit_after_the_other() -> None:
    flow = {"concurrency": {"limit": 2}, "throttle": {"limit": 1, "per_s": 5}}
    one = played(flow | {"rate_limit": {"limit": 3, "per_s": 60}})
    assert codes(one) == [None] * 3 + ["flow_rate_limited"]
    assert one.took_ms == pytest.approx(2 * 5_000 + TAKES_MS, abs=1)


def test_a_run_that_ends_while_it_waits_gives_up_its_place() -> None:
    one = played({"concurrency": {"limit": 1}}, slo_ms=2_500)
    assert one.status == "expired"
    assert one.took_ms == pytest.approx(2_500, abs=1)


def test_a_run_that_is_played_holds_its_place_while_it_calls_its_own_pipeline() -> None:
    nested = {
        "pipeline": "nested",
        "slo_ms": 5_000,
        "flow": {"singleton": {"mode": "skip"}},
        "nodes": {"a": {"type": "pipeline", "pipeline": "nested", "when": "input.again"}},
    }
    one = Play(nested).run({"again": True})
    assert one.error is not None
    assert one.error.code == "flow_singleton_skipped"


def test_the_run_that_is_played_waits_for_a_debounce_too() -> None:
    node = {"type": "python", "handler": ECHO}
    one = Play({"pipeline": "p", "flow": {"debounce": {"wait_s": 5}}, "nodes": {"a": node}}).run()
    assert one.status == "succeeded"
    assert one.took_ms == pytest.approx(5_000, abs=1)


def test_many_runs_at_one_limit_have_the_same_trace_twice() -> None:
    over = str(list(range(150)))
    first, again = (played({"debounce": {"wait_s": 1}}, over) for _ in range(2))
    assert first == again
    assert first.output == [None] * 149 + [149]
