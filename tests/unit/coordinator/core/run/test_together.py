"""What one event of a run may ask for at once: a decision is not interrupted, and others wait for it."""

from typing import Any

import pytest

from hocket.coordinator.core.run import work
from hocket.schemas.templates import budget
from support.run_player import Play, python

HOT = "{% for i in range(30000) %}{% endfor %}x"
SKIPPED = {"type": "graph", "nodes": {"z": python(when="false")}, "output": "1"}
OVER = {"over": "range(1000)|list", "concurrency": 1_000}
FOR_EVER = {"until": "false", "max_rounds": 10_000, "on_exhausted": "accept"}
RACE = {
    "type": "race",
    "branches": dict.fromkeys(("a", "b"), SKIPPED),
    "pick": "best",
    "score": "range(20000)|map('string')|list|length",
}


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": python(**{"with": {f"k{i}": HOT for i in range(100)}})},
        {"a": python(**{"with": {"x": HOT}}, map=OVER)},
        {f"n{i}": python(**{"with": {"x": HOT}}) for i in range(100)},
        {f"n{i}": python(when="(range(20000)|sum) < 0", optional=True) for i in range(100)},
        {"a": SKIPPED | {"output": {f"k{i}": HOT for i in range(100)}}},
        {
            "a": SKIPPED
            | {"loop": FOR_EVER | {"until": "range(20000)|map('string')|list|length < 0"}}
        },
        {"a": {"type": "graph", "nodes": {"b": SKIPPED | {"loop": FOR_EVER}}, "loop": FOR_EVER}},
        {"a": {"type": "graph", "nodes": {"b": SKIPPED | {"map": OVER}}, "map": OVER}},
        {f"r{i}": RACE for i in range(40)},
        {
            "a": python(),
            **{
                f"l{i}": {
                    "type": "llm",
                    "model": "m",
                    "prompt": HOT,
                    "prefill": True,
                    "needs": ["a"],
                }
                for i in range(100)
            },
        },
    ],
    ids=[
        "fields",
        "items",
        "nodes",
        "conditions",
        "output",
        "until",
        "rounds",
        "items of items",
        "scores",
        "prompts that are foretold",
    ],
)
def test_an_event_that_asks_for_too_much_at_once_ends_its_run(
    nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MAX_TOGETHER_OPERATIONS", 2_000_000)
    play = Play(nodes)
    assert play.run.error is not None
    assert (play.run.status, play.run.error.code) == ("failed", "run_computes_too_much")
    assert len(play.run.steps) < 5_000


def test_what_the_templates_of_one_value_make_is_bounded_together() -> None:
    play = Play({"a": python(**{"with": {f"k{i}": "{{ 'a' * 2000000 }}" for i in range(100)}})})
    assert play.run.error is not None
    assert play.run.error.code == "expression_failed"
    assert "64,000,000 bytes" in play.run.error.message


def test_a_wide_map_and_a_long_loop_of_ordinary_steps_stay_within_it() -> None:
    wide = python(
        **{"with": {"x": "{{ item }} of {{ input.name }}", "y": "{{ index + 1 }}"}},
        map={"over": "range(10000)|list", "max_items": 10_000, "concurrency": 10_000},
    )
    play = Play({"a": wide}, input={"name": "n" * 200})
    assert len(play.dispatched) == 10_000
    assert Play({"a": SKIPPED | {"loop": FOR_EVER}}).run.status == "succeeded"


def test_each_event_has_an_account_of_its_own() -> None:
    hot = [python(**{"with": {"x": HOT}}, needs=[f"n{i - 1}"] if i else []) for i in range(100)]
    play = Play({f"n{i}": node for i, node in enumerate(hot)})
    play.work(lambda request: None)
    assert play.run.status == "succeeded"


def test_a_run_of_many_costly_events_has_one_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_RUN_OPERATIONS", 1_000_000)
    play = Play({"a": python(loop=FOR_EVER | {"until": "(range(20000)|sum) < 0"})})
    rounds = 0
    while not play.run.has_ended and rounds < 1_000:
        play.finish(f"a#{(rounds := rounds + 1)}")
        assert play.read_back().operations == play.run.operations
        assert play.outcomes[-1].run_changed
    assert play.run.error is not None
    assert (play.run.status, play.run.error.code) == ("failed", "expressions_used_up")
    assert 5 < rounds < 50


def test_small_events_neither_count_nor_write_the_run() -> None:
    play = Play({"a": python(loop=FOR_EVER | {"until": "round > 3"})})
    play.work(lambda request: None)
    assert play.run.status == "succeeded"
    assert play.run.operations == 0
    assert not any(decision.run_changed for decision in play.outcomes[1:-1])


def test_a_score_that_is_no_float_loses() -> None:
    race = {"type": "race", "branches": {"a": python(), "b": python()}, "pick": "best"}
    play = Play({"r": race | {"score": "output.n"}})
    play.finish("r~a", output={"n": 10**400})
    play.finish("r~b", output={"n": 1})
    assert play.run.output.value == {"n": 1}
