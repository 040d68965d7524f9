"""A step with effects outside goes out after its commit, though its run is being read back just then."""

from types import SimpleNamespace
from typing import Any

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.runs.run_cache import Runs
from support.run_player import Play, python


def test_a_commit_that_comes_while_a_run_is_read_back_hands_its_step_out_later() -> None:
    play = Play({"a": python(effects="external")})
    (dispatch,) = (one for one in play.outcomes[0].commands if isinstance(one, Dispatch))
    executed: list[Any] = []
    executor: Any = SimpleNamespace(execute=executed.append, execute_surely=executed.append)
    services = SimpleNamespace(load=None, durations=None, metrics=None)
    runs = Runs()
    context: Any = SimpleNamespace(services=services, tenure=None, runs=runs, notifier=None)
    recorder = DecisionRecorder(context, executor)
    runs.put(play.run)
    runs.drop(play.run)
    recorder._execute_committed(dispatch)
    assert executed == []
    del runs.dropped[play.run.run_id]
    runs.put(play.run)
    recorder.hand_out_committed(play.run.run_id)
    assert executed == [dispatch]
    assert runs.committed == {}
