"""A worker tells of a clock that is not the platform's."""

from typing import Any

import pytest
import structlog

from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process import clock
from hocket.worker.clock_check import compare_clocks, surely_ahead_ms

SERVER_S = 1_767_225_600.25
TOLD = "2026-01-01T00:00:00.250000999Z"


class Server:
    """Stands for NATS: tells the time, or something else."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def api(self, subject: str, request: Any, *, timeout_ms: float) -> Any:
        assert (subject, request) == ("STREAM.INFO.STEPS", {})
        assert timeout_ms > 0
        if self._answer is None:
            raise BusUnavailable(reason="no answer")
        return self._answer


async def told(answer: Any, ahead_s: float) -> list[Any]:
    server: Any = Server(answer)
    with (
        clock.source(lambda: SERVER_S + ahead_s, lambda: 0.0),
        structlog.testing.capture_logs() as lines,
    ):
        await compare_clocks(server)
    return [line["ahead_ms"] for line in lines if line["event"] == "clock_differs"]


@pytest.mark.parametrize("ahead_s", [120.0, 2.0, -2.0, -15.0])
async def test_a_clock_that_is_wrong_is_told(ahead_s: float) -> None:
    assert await told({"ts": TOLD}, ahead_s) == [ahead_s * 1000]


@pytest.mark.parametrize("ahead_s", [0.9, 0.0, -0.9])
async def test_a_clock_that_is_nearly_right_is_not(ahead_s: float) -> None:
    assert await told({"ts": TOLD}, ahead_s) == []


@pytest.mark.parametrize("answer", [None, {}, {"ts": "soon"}, {"ts": 7}, []], ids=range(5))
async def test_a_server_that_does_not_tell_its_time_is_no_reason(answer: Any) -> None:
    assert await told(answer, 120.0) == []


@pytest.mark.parametrize(
    ("asked_ms", "answered_ms", "ahead_ms"),
    [(1_000, 9_000, 0), (6_000, 9_000, 1_000), (1_000, 4_000, -1_000), (5_000, 5_000, 0)],
)
def test_a_slow_answer_is_not_taken_for_a_wrong_clock(
    asked_ms: float, answered_ms: float, ahead_ms: float
) -> None:
    assert surely_ahead_ms(5_000, asked_ms, answered_ms) == ahead_ms
