"""What a new owner must assume of the steps that its predecessor may have published."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.events.log_reader import LogPosition

ATTACHED_MS = 1_000.0


class Dispatcher:
    def __init__(self) -> None:
        self.given: list[Dispatch] = []

    def dispatch(self, command: Dispatch) -> None:
        self.given.append(command)

    def cancel(self, command: Any) -> None:
        raise AssertionError(command)


@pytest.mark.parametrize(
    ("dispatched_at_ms", "again"), [(ATTACHED_MS - 1, True), (ATTACHED_MS + 1, False)]
)
def test_a_step_whose_event_was_there_before_may_be_with_a_worker(
    dispatched_at_ms: float, again: bool
) -> None:
    dispatcher, nothing = Dispatcher(), SimpleNamespace()
    cache = SimpleNamespace(look_up=None, fill=None, release=None)
    services = SimpleNamespace(bus=nothing, dispatcher=dispatcher, step_cache=cache)
    context = SimpleNamespace(
        services=services,
        tenure=SimpleNamespace(over=False),
        position=LogPosition(0, "", attached_at_ms=ATTACHED_MS),
        notifier=nothing,
        demand=nothing,
        posts=nothing,
    )
    executor = CommandExecutor(cast(Any, context), cast(Any, nothing))
    command = Dispatch.__new__(Dispatch)
    command.dispatched_at_ms, command.again = dispatched_at_ms, False
    executor.execute(command)
    assert [given.again for given in dispatcher.given] == [again]
