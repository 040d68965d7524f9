"""`hocket-worker` ends when it is told to, whatever it waits for."""

import asyncio
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hocket.worker import command
from hocket.worker.worker import Running

GIVEN = Namespace(nats=None, blobs=None, name=None, queues=(), drain_s=1.0, blocked_s=0.0)
Handlers = dict[int, Callable[[], None]]


class Starting:
    """A worker that needs something before it can run."""

    def __init__(self, *, starts: bool) -> None:
        self.begun, self.ready = asyncio.Event(), asyncio.Event()
        self.drained = False
        if starts:
            self.ready.set()

    @asynccontextmanager
    async def run(self, **_options: Any) -> AsyncIterator[Running]:
        self.begun.set()
        await self.ready.wait()
        try:
            yield Running("w", asyncio.Event())
        finally:
            self.drained = True


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    """The handlers of signals, which are called instead of sending the signals."""
    found: Handlers = {}

    def add(_loop: Any, number: int, call: Callable[..., None], *given: Any) -> None:
        found[number] = lambda: call(*given)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", add)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("starts", [True, False], ids=["running", "waiting"])
async def test_a_first_signal_ends_a_worker_that_runs_and_one_that_waits(
    handlers: Handlers, number: int, starts: bool
) -> None:
    worker: Any = Starting(starts=starts)
    serving = asyncio.create_task(command._serve(worker, GIVEN))
    await worker.begun.wait()
    handlers[number]()
    async with asyncio.timeout(60):
        assert await serving == 0
    assert worker.drained == starts
