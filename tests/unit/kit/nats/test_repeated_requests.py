"""What is asked again until somebody answers."""

import asyncio
from typing import Any

import pytest

from hocket.kit.nats import repeated_requests
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.repeated_requests import api_repeated

BOUND_S = 20.0
LONG_MS = 3_600_000.0


class Cluster:
    """Servers that answer one question only: the first after a leader is elected."""

    def __init__(self, answered: int) -> None:
        self.answered = answered
        self.asked = 0

    async def api(self, _subject: str, _request: Any, *, timeout_ms: float) -> Any:
        self.asked += 1
        if self.asked == self.answered:
            return {"by": self.asked}
        await asyncio.sleep(timeout_ms / 1000)
        raise BusUnavailable(reason="nats: timeout")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_requests, "AGAIN_S", 0.01)


def questions() -> list[str]:
    """Return what is still being asked."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("ask ")]


async def test_an_answer_does_not_wait_for_the_questions_that_went_unanswered() -> None:
    cluster: Any = Cluster(answered=3)
    async with asyncio.timeout(BOUND_S):
        assert await api_repeated(cluster, "INFO", {}, timeout_ms=LONG_MS) == {"by": 3}
    assert not questions(), "nobody waits for the others"


async def test_where_nobody_answers_in_time_that_is_said() -> None:
    cluster: Any = Cluster(answered=0)
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(BusUnavailable, match="timeout"):
            await api_repeated(cluster, "INFO", {}, timeout_ms=50.0)
    assert not questions()
