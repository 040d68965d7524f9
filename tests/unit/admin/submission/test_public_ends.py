"""Ends of runs are heard by those who wait for them, over one subscription for each pipeline."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, cast

from hocket.admin.submission.public_ends import PublicEnds
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.messages import RunFinished
from support.administration.webhook_rig import ended

BOUND_S = 5.0


class Server:
    """Stands for a bus: it passes on what it is told, once it was allowed to subscribe."""

    def __init__(self) -> None:
        self.heard: dict[Subscription, Callable[[RawMessage], None]] = {}
        self.subscriptions = 0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.error: Exception | None = None

    async def subscribe_raw(self, subject: str, callback: Callable[[RawMessage], None]) -> Any:
        self.subscriptions += 1
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        subscription = Subscription(self, subject)
        self.heard[subscription] = callback
        return subscription

    def tell(self, end: RunFinished, pipeline: str = "report", data: bytes | None = None) -> None:
        head = f"NATS/1.0\r\nce-subject: {end.run_id}\r\n\r\n".encode()
        subject = f"hocket.event.default.{pipeline}.run-finished"
        body = end.model_dump_json().encode() if data is None else data
        for subscription, callback in self.heard.items():
            if subscription.subject == subject:
                callback(RawMessage(subject, "", body, head))


class Subscription:
    def __init__(self, server: Server, subject: str) -> None:
        self._server = server
        self.subject = subject

    async def unsubscribe(self) -> None:
        await asyncio.sleep(0)
        del self._server.heard[self]


async def wait_for(
    ends: PublicEnds, server: Server, run_id: str, stack: AsyncExitStack, pipeline: str = "report"
) -> asyncio.Future[RunFinished]:
    end: asyncio.Future[RunFinished] = asyncio.get_running_loop().create_future()
    bus = cast(Bus, server)
    await stack.enter_async_context(ends.hearing(bus, "default", pipeline, run_id, end))
    return end


async def test_each_hears_of_its_run_and_nothing_of_others_is_read() -> None:
    ends, server = PublicEnds(), Server()
    async with asyncio.timeout(BOUND_S), AsyncExitStack() as stack:
        first, second, same = [
            await wait_for(ends, server, run_id, stack) for run_id in ("r1", "r2", "r2")
        ]
        other = await wait_for(ends, server, "r1", stack, "index")
        server.tell(ended("r9"), data=b"no JSON")
        server.tell(ended("r2"))
        assert (await second).run_id == (await same).run_id == "r2"
        assert not first.done()
        server.tell(ended("r2"))  # it is told at least once
        server.tell(ended("r1"))
        assert (await first).run_id == "r1"
        assert not other.done()
    assert server.subscriptions == 2
    assert server.heard == {}


async def test_who_comes_while_the_last_one_goes_is_heard() -> None:
    ends, server = PublicEnds(), Server()
    async with asyncio.timeout(BOUND_S), AsyncExitStack() as later:
        going = AsyncExitStack()
        await wait_for(ends, server, "r1", going)
        leaving = asyncio.create_task(going.aclose())
        await asyncio.sleep(0)
        end = await wait_for(ends, server, "r2", later)
        await leaving
        server.tell(ended("r2"))
        assert (await end).run_id == "r2"
    assert server.heard == {}


async def test_who_gives_up_before_the_subscription_leaves_it_to_others() -> None:
    ends, server = PublicEnds(), Server()
    server.is_open.clear()
    async with asyncio.timeout(BOUND_S), AsyncExitStack() as stack:
        asked = [
            asyncio.create_task(wait_for(ends, server, run_id, stack)) for run_id in ("r1", "r2")
        ]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.wait({asked[0]})
        server.is_open.set()
        end = await asked[1]
        server.tell(ended("r2"))
        assert (await end).run_id == "r2"
    assert (server.subscriptions, server.heard) == (1, {})


async def test_an_error_is_everybodys_and_the_next_one_tries_again() -> None:
    ends, server = PublicEnds(), Server()
    server.error = ConnectionError("away")
    async with asyncio.timeout(BOUND_S), AsyncExitStack() as stack:
        asked = [wait_for(ends, server, run_id, stack) for run_id in ("r1", "r2")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(error) for error in found] == ["away", "away"]
        server.error = None
        end = await wait_for(ends, server, "r1", stack)
        server.tell(ended("r1"))
        assert (await end).run_id == "r1"
