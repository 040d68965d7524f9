"""What a run's values may come to, and that it is the same after a restart."""

import pytest
from pydantic_core import to_json

from hocket.coordinator.core.run import work
from hocket.coordinator.core.run.constructs.containers import maps
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import HandlerWait, SignalReceived, StepRequested, encoded
from support.run_player import Play, python

LIMIT = 1_000_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (work, maps):
        monkeypatch.setattr(module, "MAX_RUN_STATE_BYTES", LIMIT)


def counted(play: Play) -> int:
    held = sum(len(to_json(event.output)) for event in (play.run.early or {}).values())
    values = [v.value for s in play.run.steps.values() for v in (s.input, s.output)]
    values += [one.value.value for one in play.emitted.values()]
    values += [signal.payload for signal in play.run.signals]
    return held + sum(len(to_json(v)) for v in (play.run.input.value, *values) if v is not None)


def test_a_map_that_makes_large_inputs_ends_its_run_and_holds_little_more_than_it_may() -> None:
    node = python(
        **{"with": {"x": "{{ 'a' * 10000 }}"}},
        map={"over": "{{ range(4000) | list }}", "max_items": 4_000, "concurrency": 4_000},
    )
    play = Play({"a": node, "b": node})
    assert play.run.error is not None
    assert (play.run.status, play.run.error.code) == ("failed", "run_too_large")
    assert LIMIT < counted(play) < LIMIT + 100_000
    assert len(play.dispatched) == 0


def test_a_list_of_outputs_that_the_run_has_no_room_for_is_never_made() -> None:
    play = Play({"a": python(map={"over": "range(60) | list"})})
    play.work(lambda request: "x" * 10_000)

    assert play.run.error is not None
    assert play.run.error.code == "run_too_large"
    assert play.run.steps["a"].output.value is None
    assert play.run.size_bytes < LIMIT


def test_a_loop_that_doubles_its_output_ends_its_run() -> None:
    node = python(
        **{"with": {"p": ["{{ previous }}", "{{ previous }}"]}},
        loop={"until": "round > 60", "max_rounds": 60, "on_exhausted": "accept"},
    )
    play = Play({"a": node})
    play.work(lambda request: request.input)
    assert play.run.error is not None
    assert play.run.error.code in ("run_too_large", "expression_failed"), play.run.error
    assert counted(play) < 3 * LIMIT


def test_what_is_counted_is_what_the_values_come_to_now_and_after_a_restart() -> None:
    play = Play(
        {
            "a": python(),
            "b": python(needs=["a"], map={"over": "nodes.a.output"}),
            "go": {"type": "signal", "signal": "go", "needs": ["b"]},
        },
        input={"text": "x" * 500},
    )
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload={"y": "z" * 300}))
    assert abs(play.run.size_bytes - counted(play)) < 10
    play.finish("a", [{"n": n} for n in range(20)])
    assert abs(play.run.size_bytes - counted(play)) < 10
    assert play.read_back().size_bytes == play.run.size_bytes
    play.work(lambda request: {"out": ["y" * 100]})
    assert play.run.status == "succeeded"
    assert abs(play.run.size_bytes - counted(play)) < 10


def test_a_chain_that_hands_on_all_that_it_was_given_fails_before_nobody_can_read_it() -> None:
    nodes = {f"n{i}": python(**({"needs": [f"n{i - 1}"]} if i else {})) for i in range(250)}
    play = Play(nodes, spec={"slo_ms": 600_000})
    asked: list[bytes] = []

    def echo(request: StepRequested) -> object:
        asked.append(encoded(request))
        return request.input

    play.work(echo)
    assert play.run.error is not None
    assert (play.run.status, play.run.error.code) == ("failed", "value_too_deep")
    assert len(asked) > 180
    for message in asked:
        StepRequested.model_validate_json(message)


def test_what_is_said_of_errors_counts_and_is_the_same_after_a_restart() -> None:
    items = {"over": "range(500)|list", "concurrency": 10, "on_item_error": "skip"}
    play = Play({"a": python(map=items), "b": python(), "c": python()})
    said = ErrorInfo(code="no", message="m" * 2_000, details={"seen": "d" * 14_000})
    play.finish("b", output=1)
    before = play.run.size_bytes
    play.finish("a[0]", error=said)
    assert play.run.size_bytes - before > 16_000
    assert play.read_back().size_bytes == play.run.size_bytes
    for i in range(1, 100):
        if not play.run.has_ended:
            play.finish(f"a[{i}]", error=said)
    assert play.run.error is not None
    assert play.run.error.code == "run_too_large"


def test_what_a_handler_waited_for_counts_no_longer_when_it_has_ended() -> None:
    """A restart would not count it: the step's row no longer has it."""
    play = Play({"a": python(), "b": python()})
    play.finish("a", waits=(HandlerWait(ordinal=1, signal="go"),))
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload="x" * 10_000, by="b"))
    assert play.run.size_bytes == play.read_back().size_bytes > 10_000
    play.finish("a", 1)
    assert play.run.size_bytes == play.read_back().size_bytes < 1_000
