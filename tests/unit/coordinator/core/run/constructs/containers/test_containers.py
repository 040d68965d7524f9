"""Maps, loops, races, fallbacks."""

import pytest

from hocket.coordinator.core.run.commands import CancelAttempt, RecordAttempt
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished
from support.run_player import Play, python, request_of

BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)
BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)


def mapped(**spec: object) -> dict:
    return python(
        map={"over": "input.xs"} | spec, **{"with": {"x": "{{ item }}", "i": "{{ index }}"}}
    )


def test_a_map_runs_once_per_item_within_its_concurrency() -> None:
    play = Play({"m": mapped(concurrency=2)}, input={"xs": [10, 20, 30]})
    assert play.waiting() == ["m[0]", "m[1]"]
    play.finish("m[1]", "b")
    assert play.waiting() == ["m[0]", "m[2]"]
    play.finish("m[0]", "a")
    play.finish("m[2]", "c")
    assert play.run.output.value == ["a", "b", "c"]


def test_a_map_over_nothing_is_done_at_once() -> None:
    play = Play({"m": mapped()}, input={"xs": []})
    assert (play.run.status, play.run.output.value) == ("succeeded", [])


@pytest.mark.parametrize("xs", ["text", 7, None])
def test_a_map_over_what_is_no_list_fails_naming_the_field(xs: object) -> None:
    play = Play({"m": mapped()}, input={"xs": xs})
    assert play.run.error is not None
    assert "map.over" in play.run.error.message


def test_a_map_over_a_large_value_says_that_it_is_stored_apart() -> None:
    reference = {"$blob": "0" * 64, "size": 2_000_000, "type": "json"}
    play = Play({"m": mapped()}, input={"xs": reference})
    assert play.run.error is not None
    assert "reference to a large value" in play.run.error.message


@pytest.mark.parametrize(
    "given", ["{{ previous.p ~ previous.p if round > 1 else 'ab' }}", ["{{ previous }}"]]
)
def test_a_loop_that_grows_its_output_ends_its_run_at_the_bound(given: object) -> None:
    loop = {"until": "false", "max_rounds": 300, "on_exhausted": "accept"}
    play = Play({"l": python(loop=loop, **{"with": {"p": given}})})
    while play.waiting():
        (key,) = play.waiting()
        play.finish(key, play.run.steps[key].input.value)
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "expression_failed"
    assert len(play.run.steps) < 70


def test_a_failed_item_fails_the_map_or_leaves_a_hole() -> None:
    play = Play({"m": mapped()}, input={"xs": [1, 2]})
    play.finish("m[0]", error=BROKEN)
    assert play.run.status == "failed"
    play = Play({"m": mapped(on_item_error="skip")}, input={"xs": [1, 2]})
    play.finish("m[0]", error=BROKEN)
    play.finish("m[1]", 2)
    assert (play.run.status, play.run.output.value) == ("degraded", [None, 2])


def test_a_loop_ends_when_until_holds_and_sees_the_round_before() -> None:
    node = python(
        loop={"until": "output >= 2"}, **{"with": {"p": "{{ previous }}", "r": "{{ round }}"}}
    )
    play = Play({"l": node})
    assert play.take("l#1").input == {"p": None, "r": 1}
    play = Play({"l": node})
    play.finish("l#1", 1)
    assert request_of(play.dispatched[0]).input == {"p": 1, "r": 2}
    play.finish("l#2", 2)
    assert play.run.output.value == 2


def test_a_loop_that_never_ends_is_exhausted_or_accepted() -> None:
    loop = {"until": "round > 2", "max_rounds": 2}
    play = Play({"l": python(loop=loop)})
    play.finish("l#1")
    play.finish("l#2")
    assert play.run.error is not None
    assert play.run.error.code == "loop_exhausted"
    play = Play({"l": python(loop=loop | {"on_exhausted": "accept"})})
    play.finish("l#1", 1)
    play.finish("l#2", 2)
    assert play.run.output.value == 2


def race(**spec: object) -> dict:
    return {"r": {"type": "race", "branches": {"a": python(), "b": python(), "c": python()}} | spec}


def test_the_first_valid_branch_wins_and_the_others_are_cancelled() -> None:
    play = Play(race(valid="output > 5"))
    play.finish("r~a", 1)
    assert play.run.status == "running"
    play.finish("r~b", 9)
    assert play.run.output.value == 9
    cancelled = [c.step for c in play.commands if isinstance(c, CancelAttempt)]
    assert cancelled == ["r~c"]
    assert play.run.steps["r~c"].state == "cancelled"


def test_the_best_branch_wins_when_all_have_ended() -> None:
    play = Play(race(pick="best", score="output"))
    play.finish("r~a", 1)
    play.finish("r~b", 3)
    play.finish("r~c", error=BROKEN)
    assert play.run.output.value == 3


def test_a_race_without_a_valid_branch_is_lost() -> None:
    play = Play(race(valid="output > 5"))
    for branch in "abc":
        play.finish(f"r~{branch}", 1)
    assert play.run.error is not None
    assert play.run.error.code == "race_lost"


def test_items_that_fail_together_open_their_maps_fallback_once() -> None:
    node = python(
        map={"over": "input.xs"},
        fallback=[{"node": python(**{"with": {"instead": True}})}],
        **{"with": {"x": "{{ item.missing }}"}},
    )
    play = Play({"m": node}, input={"xs": [1, 2, 3]})
    assert play.seen == ["m!1"]
    play.finish("m!1", "served")
    assert (play.run.status, play.run.output.value) == ("degraded", "served")


def test_a_fallback_serves_for_the_errors_it_names() -> None:
    node = python(
        fallback=[
            {"on": ["transient"], "node": python(handler="m:other")},
            {"node": python(handler="m:last")},
        ]
    )
    play = Play({"a": node}, input={"q": 1})
    given = request_of(play.dispatched[0]).input
    play.finish("a", error=BROKEN)
    request = play.take("a!2")
    assert (request.config, request.input) == ({"handler": "m:last"}, given)
    play = Play({"a": node})
    play.finish("a", error=BUSY)
    play.finish("a!1", error=BROKEN)
    play.finish("a!2", "served")
    assert (play.run.status, play.run.output.value) == ("degraded", "served")


def test_when_every_fallback_fails_the_last_error_stands() -> None:
    play = Play({"a": python(fallback=[{"node": python()}])})
    play.finish("a", error=BUSY)
    play.finish("a!1", error=BROKEN)
    assert play.run.error == BROKEN


def test_what_a_planner_emits_runs_under_it_within_its_policy() -> None:
    planner = {
        "type": "planning",
        "model": "m",
        "with": {"question": "?"},
        "emit": {"types": ["python"], "handlers": ["m:f"], "max_steps": 2},
    }
    emitted = {"nodes": {"x": python(), "y": python(needs=["x"])}}
    play = Play({"p": planner, "z": python(needs=["p"])})
    play.finish("p", emitted)
    assert play.waiting() == ["p/x"]
    play.finish("p/x", 1)
    play.finish("p/y", 2)
    assert play.take("z").input["p"] == 2
    play = Play({"p": planner})
    play.finish("p", {"nodes": {n: python() for n in "abc"}})
    assert play.run.error is not None
    assert play.run.error.code == "plan_refused"
    play = Play({"p": planner})
    play.finish("p", {"nodes": {"s": {"type": "sql", "database": "d"}}})
    assert "sql" in play.run.error.message  # type: ignore[union-attr]


def test_a_map_of_many_items_and_a_loop_of_many_rounds_stay_flat() -> None:
    play = Play({"m": mapped(max_items=2_000, concurrency=50)}, input={"xs": list(range(2_000))})
    play.work(lambda request: request.input["x"])
    assert play.run.output.value == list(range(2_000))
    assert max(len(d.changed) for d in play.outcomes[1:]) <= 4
    play = Play({"l": python(loop={"until": "round >= 500", "max_rounds": 500})})
    play.work(lambda request: request.step)
    assert play.run.output.value == "l#500"


def test_an_emitted_node_may_have_a_fallback_within_the_policy() -> None:
    emit = {"types": ["python"], "handlers": ["m:f"], "max_steps": 2, "max_depth": 1}
    planner = {"type": "planning", "model": "m", "with": {"question": "?"}, "emit": emit}
    play = Play({"p": planner})
    play.finish("p", {"nodes": {"x": python(fallback=[{"node": python()}])}})
    play.finish("p/x", error=BROKEN)
    play.finish("p/x!1", 7)
    assert (play.run.status, play.run.output.value) == ("degraded", 7)
    play = Play({"p": planner})
    play.finish("p", {"nodes": {n: python(fallback=[{"node": python()}]) for n in "ab"}})
    assert play.run.error is not None
    assert "there are 4, but the policy allows 2" in play.run.error.message


def test_a_fallback_with_rounds_has_the_input_of_its_node_in_each_of_them() -> None:
    prompt = "{{ input.q }} {{ input.previous }} {{ input.round }}"
    loop = {"until": "output == 'good'", "max_rounds": 3}
    asks = {"type": "llm", "model": "m", "prompt": prompt, "loop": loop}
    play = Play({"a": python(fallback=[{"node": asks}], **{"with": {"q": "why"}})})
    play.finish("a", error=BROKEN)
    assert play.take("a!1#1").input == {"q": "why", "previous": None, "round": 1}
    play.send(AttemptFinished(run_id="r1", step="a!1#1", attempt=1, output="bad"))
    assert play.take("a!1#2").input == {"q": "why", "previous": "bad", "round": 2}


def test_a_race_keeps_who_won_and_stops_the_others_in_the_same_decision() -> None:
    graph = {"type": "graph", "nodes": {"x": python(), "y": python(map={"over": "[1, 2]"})}}
    branches = {"a": python(), "b": graph, "c": {"type": "pipeline", "pipeline": "other"}}
    play = Play({"r": {"type": "race", "branches": branches}, "z": python(needs=["r"])})
    before = len(play.commands)
    play.finish("r~a", 1)
    assert play.run.steps["r"].winner == "r~a"
    stopped = [c for c in play.commands[before:] if type(c).__name__.startswith("Cancel")]
    assert [getattr(c, "step", "sub-run") for c in stopped] == [
        "r~b/x",
        "r~b/y[0]",
        "r~b/y[1]",
        "sub-run",
    ]
    assert play.waiting() == ["z"]


def test_the_end_of_a_stopped_attempt_is_kept_as_cancelled() -> None:
    play = Play(race() | {"z": python(needs=["r"])})
    play.finish("r~a", 1)
    stopped = ErrorInfo(
        code="attempt_cancelled", message="stopped", error_class=ErrorClass.CANCELLED
    )
    play.send(AttemptFinished(run_id="r1", step="r~b", attempt=1, error=stopped))
    play.send(AttemptFinished(run_id="r1", step="r~c", attempt=1, output="too late"))
    kept = [(c.key, c.outcome) for c in play.commands if isinstance(c, RecordAttempt)]
    assert kept == [("r~b", "cancelled"), ("r~c", "late")]


@pytest.mark.parametrize("with_v", [{}, {"v": 9}])
def test_an_item_that_ends_as_its_map_fails_starts_nothing_beside_the_fallback(
    with_v: dict[str, int],
) -> None:
    """The first item has no `v`, and the nodes inside the second are all skipped: both end in the
    event in which the map begins."""
    node = {
        "type": "graph",
        "map": {"over": "input.xs", "concurrency": 2},
        "with": {"v": "{{ item.v }}"},
        "nodes": {"a": python(when="input.v > 5")},
        "output": "done",
        "fallback": [{"node": python(**{"with": {"instead": number}})} for number in (1, 2)],
    }
    play = Play({"m": node}, input={"xs": [{}, {"v": 1}, with_v, {"v": 9}]})
    assert play.seen == ["m!1"]
    play.finish("m!1", "served")
    assert (play.run.status, play.run.output.value) == ("degraded", "served")
    assert play.run.live() == []


@pytest.mark.parametrize("score", ["nan", "inf", "-inf", "much", "5", True, None, [1]])
def test_a_branch_whose_score_is_not_a_number_does_not_compete(score: object) -> None:
    play = Play({"r": {"type": "race", "pick": "best", "score": "output", "branches": {
        "a": python(), "b": python(), "c": python()}}})  # fmt: skip
    play.finish("r~a", score)
    play.finish("r~b", 1)
    play.finish("r~c", 2)
    assert play.run.steps["r"].winner == "r~c"


@pytest.mark.parametrize(
    ("scores", "winner"),
    [
        ((2**53, 2**53 + 1), "r~b"),
        ((2**53 + 1, 2**53), "r~a"),
        ((float(2**53), 2**53 + 1), "r~b"),
        ((2**53, float(2**53)), "r~a"),
        ((-(2**63), -1.5), "r~b"),
        ((0, -0.0), "r~a"),
        ((2**63 - 1, 1e300), "r~b"),
    ],
)
def test_scores_are_compared_as_the_numbers_they_are(
    scores: tuple[float, float], winner: str
) -> None:
    branches = {"a": python(), "b": python()}
    play = Play({"r": {"type": "race", "pick": "best", "score": "output", "branches": branches}})
    for name, score in zip("ab", scores, strict=True):
        play.finish(f"r~{name}", score)
    assert play.run.steps["r"].winner == winner


def test_a_race_in_which_no_score_is_a_number_is_lost() -> None:
    branches = {"a": python(), "b": python()}
    play = Play({"r": {"type": "race", "pick": "best", "score": "output", "branches": branches}})
    play.finish("r~a", "9")
    play.finish("r~b", False)
    assert play.run.error is not None
    assert play.run.error.code == "race_lost"


def test_outputs_that_a_list_or_an_object_makes_too_deep_fail_their_container() -> None:
    deepest: object = 1
    for _ in range(190):
        deepest = [deepest]
    graph = {"type": "graph", "nodes": {"a": python(), "b": python()}}
    for node in (python(map={"over": "[1]"}), graph):
        instead = [{"on": ["value_too_deep"], "node": python(**{"with": {}})}]
        play = Play({"n": node | {"fallback": instead}})
        while "n!1" not in play.waiting():
            play.finish(play.waiting()[0], deepest)
        play.finish("n!1", "served")
        assert (play.run.status, play.run.output.value) == ("degraded", "served")
