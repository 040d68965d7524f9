"""`cache` in the pure core: a step asks before it computes, and fills or releases what it asked for."""

import json
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.state.run import Source
from hocket.schemas import ids
from hocket.schemas.errors import ErrorClass, ErrorInfo, InvalidInput
from hocket.schemas.messages import (
    CacheAnswered,
    CancelRequested,
    SignalReceived,
    Spend,
    TimerFired,
)
from hocket.schemas.pipeline.plan import compile_pipeline
from support.run_player import START_MS, Play, python
from support.runs.stored import assert_same

BROKEN = ErrorInfo(code="broken", message="broken")
BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
DAY_MS = 86_400_000


def cached(**fields: Any) -> dict[str, Any]:
    return python(cache={"ttl_ms": DAY_MS}) | fields


def asks(play: Play) -> list[LookUpCache]:
    return [c for c in play.commands if isinstance(c, LookUpCache)]


def fills(play: Play) -> list[FillCache]:
    return [c for c in play.commands if isinstance(c, FillCache)]


def releases(play: Play) -> list[ReleaseCache]:
    return [c for c in play.commands if isinstance(c, ReleaseCache)]


def answer(play: Play, step: str, **fields: Any) -> None:
    key = next(c.key for c in reversed(asks(play)) if c.step == step)
    play.send(CacheAnswered(run_id="r1", step=step, key=key, **fields))


def compute(play: Play, step: str) -> None:
    answer(play, step, hit=False)


def hit(play: Play, step: str, output: Any, **fields: Any) -> None:
    answer(
        play, step, hit=True, output=output, computed_by_run="r9", computed_by_step="x", **fields
    )


def wake(play: Play, after_ms: float) -> None:
    play.now_ms += after_ms
    play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))


def test_a_step_with_cache_asks_before_any_worker_hears_of_it() -> None:
    play = Play({"a": cached()})
    assert play.waiting() == []
    assert play.run.steps["a"].state == "looking_up"
    (ask,) = asks(play)
    assert (ask.run_id, ask.step, ask.tenant, ask.ttl_ms) == ("r1", "a", "t", DAY_MS)
    assert ask.claim_until_ms == play.run.deadline_at_ms


def test_a_hit_ends_the_step_without_a_worker_and_says_who_computed_it_and_what_was_saved() -> None:
    play = Play(
        {"a": cached(), "b": python(needs=["a"], **{"with": {"v": "{{ nodes.a.output }}"}})}
    )
    hit(play, "a", {"k": 1}, saved_usd=Decimal("0.25"))
    assert play.waiting() == ["b"]
    step = play.run.steps["a"]
    assert (step.state, step.output.value, step.attempt) == ("succeeded", {"k": 1}, 0)
    assert step.source == Source("cache", "r9", "x", Decimal("0.25"))
    assert play.take("b").input == {"v": {"k": 1}}
    assert play.run.spent_usd == 0


def test_a_step_told_to_compute_runs_and_fills_the_entry_with_what_it_cost() -> None:
    play = Play({"a": cached()})
    compute(play, "a")
    play.finish("a", [1, 2], spend=Spend(calls=1, cost_usd=Decimal("0.5")))
    assert play.run.status == "succeeded"
    (fill,) = fills(play)
    assert (fill.key, fill.run_id, fill.step) == (asks(play)[0].key, "r1", "a")
    assert (fill.output, fill.cost_usd, fill.ttl_ms) == ([1, 2], Decimal("0.5"), DAY_MS)
    assert releases(play) == []


def test_a_step_that_fails_for_good_releases_the_entry_once_its_retries_are_used_up() -> None:
    play = Play({"a": cached(retry={"max_attempts": 2, "backoff_ms": 10})})
    compute(play, "a")
    play.finish("a", error=BUSY)
    assert releases(play) == []
    wake(play, 100)
    play.finish("a", error=BUSY)
    assert play.run.status == "failed"
    assert [(r.run_id, r.step) for r in releases(play)] == [("r1", "a")]
    assert fills(play) == []


def test_an_output_that_no_step_can_keep_is_not_kept_for_others_either() -> None:
    play = Play({"a": cached()})
    compute(play, "a")
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    play.finish("a", deep)
    assert play.run.error is not None
    assert play.run.error.code == "value_too_deep"
    assert fills(play) == []
    assert len(releases(play)) == 1


def test_a_fallback_serves_its_own_step_and_not_the_cache() -> None:
    play = Play({"a": cached(fallback=[{"node": python()}])})
    compute(play, "a")
    play.finish("a", error=BROKEN)
    play.finish("a!1", "instead")
    assert play.run.output.value == "instead"
    assert fills(play) == []
    assert len(releases(play)) == 1


def test_a_cancelled_step_releases_what_it_waits_for_and_what_it_computes() -> None:
    play = Play({"a": cached(), "b": cached(**{"with": {"x": 1}})})
    compute(play, "b")
    play.send(CancelRequested(run_id="r1"))
    assert sorted(r.step for r in releases(play)) == ["a", "b"]


def test_a_turn_to_compute_that_comes_after_the_end_is_given_back() -> None:
    play = Play({"a": cached()})
    play.send(CancelRequested(run_id="r1"))
    before = len(releases(play))
    compute(play, "a")
    assert len(releases(play)) == before + 1
    assert play.waiting() == []


def test_an_answer_that_is_told_twice_changes_nothing() -> None:
    play = Play({"a": cached()})
    compute(play, "a")
    compute(play, "a")
    hit(play, "a", "other")
    assert play.waiting() == ["a"]
    play.finish("a", "mine")
    assert play.run.output.value == "mine"


def test_a_step_without_an_answer_asks_again() -> None:
    play = Play({"a": cached(expect={"mean_ms": 1_000})})
    assert play.run.steps["a"].wake_at_ms == START_MS + 5_000
    wake(play, 5_000)
    assert [c.key for c in asks(play)] == [asks(play)[0].key] * 2
    assert play.waiting() == []


def test_a_step_computes_by_itself_when_waiting_longer_would_cost_its_deadline() -> None:
    play = Play({"a": cached(expect={"mean_ms": 1_000})}, spec={"slo_ms": 4_000})
    assert play.run.steps["a"].wake_at_ms == START_MS + 3_000
    wake(play, 3_000)
    assert play.waiting() == ["a"]


def test_a_step_computes_by_itself_when_it_waited_for_the_time_of_an_attempt() -> None:
    play = Play({"a": cached(timeout_ms=7_000)}, spec={"slo_ms": 1_000_000})
    wake(play, 5_000)
    assert play.waiting() == []
    wake(play, 2_000)
    assert play.waiting() == ["a"]
    play.finish("a", 1)
    assert len(fills(play)) == 1, "what it computed serves the others"


def test_a_new_owner_asks_again_for_the_steps_that_look_up() -> None:
    play = Play({"a": cached(), "b": python()})
    outcome = resume(play.run, play.now_ms, play.forecast)
    again = [c for c in outcome.commands if isinstance(c, LookUpCache)]
    assert [asdict(c) for c in again] == [asdict(c) for c in asks(play)]


def test_a_hit_costs_nothing_and_is_served_when_the_budget_is_spent() -> None:
    spec = {"budget_usd": "0.1"}
    nodes = {
        "p": python(),
        "a": cached(needs=["p"]),
        "b": cached(needs=["p"], **{"with": {"x": 1}}),
    }
    play = Play(nodes, spec=spec)
    play.finish("p", 1, spend=Spend(cost_usd=Decimal("0.1")))
    hit(play, "a", 7)
    assert play.run.steps["a"].state == "succeeded"
    compute(play, "b")
    assert play.run.error is not None
    assert play.run.error.code == "budget_exhausted"


def test_equal_work_has_one_key_whatever_pipeline_node_or_policy_it_stands_in() -> None:
    given = {"with": {"q": "{{ input.q }}"}}
    one = Play({"a": cached(**given)}, input={"q": 1})
    other = Play(
        {"z": cached(retry={"max_attempts": 2}, timeout_ms=9, description="d", **given)},
        input={"q": 1, "else": 2},
        spec={"pipeline": "other"},
    )
    assert asks(one)[0].key == asks(other)[0].key


@pytest.mark.parametrize(
    "node",
    [
        cached(**{"with": {"q": 2}}),
        cached(handler="m:g", **{"with": {"q": 1}}),
        {"type": "llm", "model": "m", "prompt": "x", "cache": {"ttl_ms": 1}, "with": {"q": 1}},
    ],
    ids=["input", "fields", "type"],
)
def test_different_work_has_another_key(node: dict[str, Any]) -> None:
    one = Play({"a": cached(**{"with": {"q": 1}})})
    other = Play({"a": node})
    assert asks(one)[0].key != asks(other)[0].key


def test_the_key_expression_stands_in_the_inputs_place() -> None:
    node = python(cache={"ttl_ms": 9, "key": "input.id"}, **{"with": {"q": "{{ input.q }}"}})
    one, same = (
        Play({"a": node}, input={"id": 7, "q": 1}),
        Play({"a": node}, input={"id": 7, "q": 2}),
    )
    other = Play({"a": node}, input={"id": 8, "q": 1})
    assert asks(one)[0].key == asks(same)[0].key
    assert asks(one)[0].key != asks(other)[0].key


def test_a_key_expression_that_fails_fails_its_step() -> None:
    play = Play({"a": python(cache={"ttl_ms": 9, "key": "input.id"})}, input={})
    assert play.run.error is not None
    assert play.run.error.code == "expression_failed"


def test_each_item_of_a_map_has_an_entry_of_its_own() -> None:
    node = cached(map={"over": "input.xs"}, **{"with": {"x": "{{ item }}"}})
    play = Play({"m": node}, input={"xs": [1, 2, 1]})
    keys = [c.key for c in asks(play)]
    assert keys[0] == keys[2] != keys[1]
    hit(play, "m[0]", "one")
    hit(play, "m[2]", "one")
    compute(play, "m[1]")
    play.finish("m[1]", "two")
    assert play.run.output.value == ["one", "two", "one"]


def test_a_planners_steps_are_kept_as_it_returned_them() -> None:
    emitted = {"nodes": {"i": python()}}
    node = {
        "type": "planning",
        "model": "m",
        "prompt": "?",
        "emit": {"types": ["python"], "handlers": ["m:f"]},
        "cache": {"ttl_ms": 9},
    }
    first = Play({"p": node})
    compute(first, "p")
    first.finish("p", emitted)
    assert fills(first)[0].output == emitted
    second = Play({"p": node})
    hit(second, "p", emitted)
    assert second.waiting() == ["p/i"]
    second.finish("p/i", 5)
    assert second.run.output.value == 5
    assert second.run.steps["p"].source is not None


def test_a_sub_pipeline_of_a_named_version_is_kept_whole() -> None:
    node = {"type": "pipeline", "pipeline": "c", "version": 3, "cache": {"ttl_ms": 9}}
    play = Play({"c": node})
    assert play.subruns() == []
    compute(play, "c")
    assert len(play.subruns()) == 1
    again = Play({"c": node})
    hit(again, "c", {"r": 1})
    assert (again.run.status, again.subruns()) == ("succeeded", [])


def test_a_result_that_came_before_its_turn_is_taken_when_the_turn_comes() -> None:
    play = Play({"a": cached()})
    from hocket.schemas.messages import AttemptFinished

    play.send(AttemptFinished(run_id="r1", step="a", attempt=1, output="early"))
    assert play.run.steps["a"].state == "looking_up"
    compute(play, "a")
    assert play.run.output.value == "early"


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"type": "approval", "cache": {"ttl_ms": 1}}, "nodes.a.cache"),
        ({"type": "signal", "signal": "s", "cache": {"ttl_ms": 1}}, "nodes.a.cache"),
        ({"type": "graph", "nodes": {"b": python()}, "cache": {"ttl_ms": 1}}, "nodes.a.cache"),
        (python(cache={"ttl_ms": 1}, effects="external"), "nodes.a.cache"),
        ({"type": "pipeline", "pipeline": "p", "cache": {"ttl_ms": 1}}, "nodes.a.cache"),
        (python(cache={"ttl_ms": 0}), "nodes.a.cache.ttl_ms"),
        (python(cache={}), "nodes.a.cache.ttl_ms"),
        (python(cache={"ttl_ms": 1, "key": "input."}), "nodes.a.cache.key"),
        (python(cache={"ttl_ms": 1, "key": "nodes.b.output"}), "nodes.a.cache.key"),
        (python(cache={"ttl_ms": 1, "scope": "world"}), "nodes.a.cache.scope"),
    ],
)
def test_a_cache_that_cannot_be_is_refused_with_its_field(node: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline({"pipeline": "p", "nodes": {"a": node}})
    assert refused.value.fields["field"] == field


def test_a_node_that_the_key_reads_ends_before() -> None:
    play = Play({"a": python(cache={"ttl_ms": 9, "key": "nodes.b.output"}), "b": python()})
    assert asks(play) == []
    play.finish("b", 1)
    assert len(asks(play)) == 1


def test_a_decision_is_the_same_when_the_log_is_read_again() -> None:
    play = Play({"a": cached(), "b": cached(needs=["a"])})
    compute(play, "a")
    play.finish("a", 1)
    hit(play, "b", 2)
    again = Play({"a": cached(), "b": cached(needs=["a"])})
    for at_ms, event in play.log[1:]:
        again.now_ms = at_ms
        again.send(event)
    assert_same(again.run, play.run)


@pytest.mark.parametrize("behind", range(1, 6))
def test_a_step_that_is_woken_a_fraction_of_a_microsecond_early_computes(behind: int) -> None:
    """Times are kept to the microsecond, so that patience may end a little after the wake-up; and the
    wake-up is dated exactly as asked for where the clock of the log is behind."""
    nodes = {"a": cached()}
    for number in range(behind):
        nodes[f"b{number}"] = python(needs=[f"b{number - 1}" if number else "a"])
    play = Play(nodes, spec={"slo_ms": 4_000})
    play.fire()
    assert play.waiting() == ["a"]


def test_what_a_node_says_is_hashed_once_for_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "x" * 10_000
    node = cached(
        type="llm",
        model="m",
        prompt="{{ input.v }}",
        system=said,
        map={"over": "range(20)|list", "concurrency": 20},
        **{"with": {"v": "{{ item }}"}},
    )
    del node["handler"]
    written: list[int] = []
    before = json.dumps

    def dumps(value: Any, **named: Any) -> str:
        text: str = before(value, **named)
        written.append(len(text))
        return text

    monkeypatch.setattr(json, "dumps", dumps)
    play = Play({"a": node})
    assert sum(written) < 3 * len(said), "once when it is compiled, once for all keys"
    own = play.run.steps["a"].node.plan.own_fields
    content = {"tenant": "t", "type": "llm", "config": own, "input": {"v": 7}}
    assert next(c.key for c in asks(play) if c.step == "a[7]") == ids.content_hash(content)


def test_a_key_of_its_own_is_hashed_in_place_of_the_input() -> None:
    play = Play({"a": cached(cache={"ttl_ms": DAY_MS, "key": "input.v ~ 'é'"})}, input={"v": "ü"})
    own = play.run.steps["a"].node.plan.own_fields
    content = {"tenant": "t", "type": "python", "config": own, "key": "üé"}
    assert asks(play)[0].key == ids.content_hash(content)


@pytest.mark.parametrize(("chars", "operations"), [(7_000, 0), (100_000, 92_002 // 16)])
def test_a_long_key_is_charged_for_like_a_text_that_is_read(chars: int, operations: int) -> None:
    def counted(size: int) -> int:
        mapped = {"over": "range(100)|list", "concurrency": 100}
        node = cached(cache={"ttl_ms": DAY_MS, "key": "input.text"}, map=mapped)
        play = Play({"a": node | {"with": {"x": "{{ item }}"}}}, input={"text": "k" * size})
        assert play.run.status == "running"
        return play.run.operations

    assert counted(chars) - counted(10) == 100 * operations


def test_a_step_has_slack_to_wait_for_its_output_while_the_deadline_is_paused() -> None:
    """Otherwise two steps compute the same, because the deadline as it stood is long past."""
    nodes = {
        "ask": {"type": "approval"},
        "go": {"type": "signal", "signal": "go"},
        "a": cached(needs=["go"]),
    }
    play = Play(nodes, spec={"slo_ms": 30_000})
    play.now_ms += DAY_MS
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload=1, by="ann"))
    step = play.run.steps["a"]
    assert step.slack_ms is not None
    assert step.slack_ms > 0
    assert step.deadline_at_ms is not None
    assert step.deadline_at_ms > play.now_ms
    wake(play, 5_000)
    assert (step.state, play.waiting()) == ("looking_up", [])
    assert all(one.claim_until_ms > play.now_ms for one in asks(play))
