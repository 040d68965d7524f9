"""What a worker makes of a gateway that does not answer in time."""

from collections.abc import Callable
from typing import Any

import pytest

from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process import clock
from hocket.schemas.messages import CallRequest
from hocket.workers.errors import GatewayUnavailable, ModelTooSlow
from hocket.workers.runtime.models.calls import ModelCalls

NOW_S = 1_000.0
LEFT_MS = 50.0


class SilentBus:
    """Asks nobody: each request takes the time that it may take, or finds that nobody listens."""

    def __init__(self, cause: BaseException | None, sleep: Callable[[float], None]) -> None:
        self.on_reconnect: list[Callable[[], None]] = []
        self.connected = True
        self._cause = cause
        self._sleep = sleep

    async def request(
        self, subject: str, payload: bytes, *, timeout_ms: float, headers: Any
    ) -> None:
        self._sleep(timeout_ms)
        raise BusUnavailable(reason=subject) from self._cause

    def publish_nowait(self, subject: str, payload: bytes) -> None: ...


async def called(cause: BaseException | None) -> None:
    now_s = NOW_S

    def sleep(ms: float) -> None:
        nonlocal now_s
        now_s += ms / 1_000

    request = CallRequest.model_construct(
        call_id="c", model="writer", deadline_at_ms=NOW_S * 1_000 + LEFT_MS
    )
    calls = ModelCalls(SilentBus(cause, sleep))  # type: ignore[arg-type]
    with clock.source(lambda: now_s, lambda: now_s):
        await calls.make(request)


async def test_a_gateway_that_works_on_a_call_until_the_end_is_there_and_the_model_too_slow() -> (
    None
):
    with pytest.raises(ModelTooSlow, match="writer"):
        await called(TimeoutError())


async def test_where_nobody_answers_until_the_end_the_gateway_is_missed() -> None:
    with pytest.raises(GatewayUnavailable):
        await called(None)
