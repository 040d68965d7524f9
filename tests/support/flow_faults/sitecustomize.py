"""Kill a coordinator, as `kill -9` does, at a point of flow control that a test has armed.

Each file in FLOW_FAULTS is one kill, and its name says where. Python imports this module from
PYTHONPATH when it starts.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any


def _die_if_armed(point: str) -> None:
    for armed in Path(os.environ["FLOW_FAULTS"]).glob(f"{point}-*"):
        try:
            armed.unlink()
        except FileNotFoundError:
            continue  # another coordinator was killed by it
        os.kill(os.getpid(), signal.SIGKILL)


def _install() -> None:
    from hocket.coordinator.flow.controller import FlowController
    from hocket.coordinator.flow.store import FlowStore, _Deciding
    from hocket.coordinator.partition.events.event_application import EventApplication
    from hocket.schemas.messages import FlowDecided

    write, decide = _Deciding._write, FlowStore.decide
    touch, apply = FlowController.touch, EventApplication.apply

    async def written_not_committed(self: Any, *arguments: Any) -> Any:
        moved = await write(self, *arguments)
        if self._outcome.started:
            _die_if_armed("written")
        return moved

    async def taken_not_told(self: Any, *arguments: Any) -> Any:
        outcome = await decide(self, *arguments)
        if outcome.started:
            _die_if_armed("taken")
        return outcome

    async def told_not_applied(self: Any, event: Any, at_ms: float) -> None:
        if isinstance(event, FlowDecided):
            _die_if_armed("told")
        await apply(self, event, at_ms)

    def committed_not_decided(self: Any, queues: Any) -> None:
        _die_if_armed("committed")
        touch(self, queues)

    _Deciding._write = written_not_committed  # type: ignore[method-assign]
    FlowStore.decide = taken_not_told  # type: ignore[method-assign]
    EventApplication.apply = told_not_applied  # type: ignore[method-assign]
    FlowController.touch = committed_not_decided  # type: ignore[method-assign]


if "FLOW_FAULTS" in os.environ and "hocket.coordinator" in sys.orig_argv:
    _install()
