"""What seconds of a node type cost that has a price."""

import asyncio
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.worker import node_type
from hocket.worker.worker import Worker
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.models.charges import Charged

Clock = list[float]


class Attempt(Charged):
    """What a node type's handler sees of its context here."""

    def __init__(self, given: Any) -> None:
        self.input = given
        self.config: dict[str, Any] = {}
        self.step = SimpleNamespace(type="gpu.render")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = [0.0]
    monkeypatch.setattr(node_type, "monotonic_ms", lambda: now[0])
    return now


async def spent(clock: Clock, given: str) -> Decimal:
    worker, threads = Worker(), StepThreads(1)

    @worker.node("gpu.render", usd_per_second="0.5")
    async def render(how: str) -> str:
        clock[0] += 2_500
        if how == "badly":
            raise ValueError(how)
        if how == "never":
            raise asyncio.CancelledError
        return how

    (one,) = worker.types
    attempt = Attempt(given)
    try:
        await one.handler(threads)(cast(Context, attempt))
    except (ValueError, asyncio.CancelledError):
        assert given != "well"
    finally:
        threads.close()
    spend = attempt._with_charges(None)
    return Decimal(0) if spend is None else spend.charged_usd


@pytest.mark.parametrize("how", ["well", "badly", "never"])
async def test_the_seconds_of_an_attempt_are_charged_however_it_ends(
    clock: Clock, how: str
) -> None:
    assert await spent(clock, how) == Decimal("1.25")
