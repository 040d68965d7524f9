"""What is told of decisions, and how often."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.coordinator.flow import controller as module
from hocket.coordinator.flow.controller import FlowController
from hocket.coordinator.flow.store import FlowOutcome
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import RunEvent

REFUSED = ErrorInfo(code="full", message="m", error_class=ErrorClass.CANCELLED)


class Ended(Exception):
    """Enough looks were made."""


class Rig:
    """Decisions of a while ago that no run shows yet, and what is posted of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.posted: list[tuple[str, str | None]] = []
        self.connected: list[bool] = []
        self.bus: Any = SimpleNamespace(connected=True, wait_for_capacity=self._room)
        store: Any = SimpleNamespace(
            any_waits=self._waits, untold=self._untold, waiting=self._queues
        )
        posts: Any = SimpleNamespace(post_to_run=self._post)
        self.controller = FlowController(
            self.bus, store, posts, CoordinatorMetrics(CollectorRegistry()), is_mine=lambda: True
        )
        monkeypatch.setattr(module.asyncio, "sleep", self._pause)

    async def looks(self, *connected: bool) -> None:
        """Look as many times, with NATS there or away."""
        self.connected = list(connected)
        with pytest.raises(Ended):
            await self.controller._look()

    async def _pause(self, seconds: float) -> None:
        if not self.connected:
            raise Ended
        self.bus.connected = self.connected.pop(0)

    async def _room(self) -> None:
        return

    async def _waits(self) -> bool:
        return True

    async def _untold(self) -> FlowOutcome:
        return FlowOutcome(
            started=["a"], refused=[("b", REFUSED)], replaced=[("c", "d"), ("a", "d")]
        )

    async def _queues(self, after: object) -> list[Any]:
        return []

    def _post(self, event: RunEvent, msg_id: str | None = None) -> None:
        self.posted.append((event.run_id, msg_id))


async def test_a_decision_that_is_told_again_has_the_same_message_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    await rig.looks(True)
    once = list(rig.posted)
    assert [run_id for run_id, _ in once] == ["a", "b", "c", "a"]
    assert len({msg_id for _, msg_id in once} - {None}) == 4
    await rig.looks(True)
    assert rig.posted == once + once


async def test_nothing_is_told_again_while_nats_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    await rig.looks(False, False, False)
    assert rig.posted == []
    await rig.looks(True)
    assert len(rig.posted) == 4
