"""Two requests for one call, of which the first to answer counts.

States: alone (the first request is waited for), joined (a second one is under way too), decided (one has
answered, or said its first piece; the other is stopped), over. If one fails the other is waited for. A
stream has one speaker: the one that says something first; the other one's pieces go nowhere. Whoever
stops the call stops both.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.relay import Relay
from hocket.gateway.capacity.slot import Slot
from hocket.gateway.hooks.chain import Prepared
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Completion

LOST = "the other request was faster"


class Announced(Protocol):
    """A request that was said to be made."""

    async def first(self) -> bool:
        """Wait until that is stored; tell whether nobody had said so before."""
        ...


@dataclass(eq=False, slots=True)
class UpstreamRequest:
    """One request at one replica, and what came of it. Without a `slot` it was never made. `turn` is
    how many gateways had begun the call before, `tail` tells its requests by one gateway apart."""

    tail: str
    turn: int = 0
    cancellation: Cancellation = field(default_factory=Cancellation)
    relay: Relay | None = None
    because: str = ""
    slot: Slot | None = None
    prepared: Prepared | None = None
    """The call as hooks leave it, where it goes through any."""
    announced: Announced | None = None
    before: tuple[str, ...] = ()
    """The replicas that were asked before."""
    started_ms: float = 0.0
    latency_ms: float = 0.0
    completion: Completion = field(default_factory=Completion)
    error: HocketError | None = None

    @property
    def suffix(self) -> str:
        """What tells this request's record from the others of the call."""
        return (f":t{self.turn}" if self.turn else "") + self.tail

    @property
    def answered(self) -> bool:
        """Whether the request was made and has an answer, where it is over."""
        return self.slot is not None and self.error is None

    @property
    def lost(self) -> bool:
        """Whether it was stopped because the other lane was first."""
        return self.cancellation.reason == LOST


Ask = Callable[[UpstreamRequest], Awaitable[None]]
"""Makes a request and fills its lane; raises no HocketError."""


class HedgedRequest:
    """The race of two lanes; `speaker` is the one whose pieces the caller gets. `behind` is the request
    that lost and goes on until its backend has said what it used, if there is one."""

    def __init__(
        self,
        first: UpstreamRequest,
        second: UpstreamRequest,
        stopped: Cancellation,
        taker: Chunks | None,
    ) -> None:
        self._lanes = (first, second)
        self._stopped = stopped
        self._taker = taker
        self._speaker: UpstreamRequest | None = None
        self._spoken = asyncio.Event()
        self.behind: asyncio.Task[None] | None = None
        if taker is not None:
            for lane in self._lanes:
                lane.relay = Relay(self._heard(lane), lane.cancellation)

    async def run(
        self, ask: Ask, join: Ask, delay_ms: float
    ) -> tuple[UpstreamRequest, UpstreamRequest | None]:
        """Ask the first lane, after `delay_ms` the second one too; return the one that counts, and the
        other one if it was made."""
        first, second = self._lanes
        asking = [asyncio.create_task(_awaited(ask(first)), name="first request")]
        try:
            await asyncio.wait(asking, timeout=delay_ms / 1000)
            if not asking[0].done() and self._speaker is None:
                asking.append(asyncio.create_task(_awaited(join(second)), name="second request"))
                await self._decided(asking)
                self._stop_loser(asking)
            await asyncio.wait(self._not_behind(asking))
        except asyncio.CancelledError:  # the call is stopped
            for lane in self._lanes:
                lane.cancellation.cancel(self._stopped.reason or "the gateway gave up")
            await asyncio.wait(asking)
        for task in asking:
            if task is not self.behind:
                task.result()
        return self._result()

    async def _decided(self, asking: list["asyncio.Task[None]"]) -> None:
        """Wait until one lane has answered or speaks, or neither will."""
        spoken = asyncio.create_task(self._spoken.wait(), name="first piece")
        try:
            waiting = {*asking, spoken}
            while waiting - {spoken}:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if spoken in done or any(lane.answered for lane in self._done(asking)):
                    return
        finally:
            spoken.cancel()

    def _done(self, asking: list["asyncio.Task[None]"]) -> list[UpstreamRequest]:
        return [lane for lane, task in zip(self._lanes, asking, strict=False) if task.done()]

    def _stop_loser(self, asking: list["asyncio.Task[None]"]) -> None:
        ahead = self._speaker or next(
            (lane for lane in self._done(asking) if lane.answered), self._lanes[0]
        )
        failed = [lane for lane in self._done(asking) if not lane.answered]
        for lane in self._lanes:
            if lane is not ahead and lane not in failed:
                lane.cancellation.cancel(LOST)

    def _not_behind(self, asking: list["asyncio.Task[None]"]) -> list["asyncio.Task[None]"]:
        """Return the requests to wait for: all but the loser that is only read on."""
        for lane, task in zip(self._lanes, asking, strict=False):
            if lane.lost and lane.cancellation.reads_on:
                self.behind = task
        return [task for task in asking if task is not self.behind]

    def _result(self) -> tuple[UpstreamRequest, UpstreamRequest | None]:
        first, second = self._lanes
        if second.slot is None:
            return first, None
        if second is self._speaker or (second.answered and (first.lost or not first.answered)):
            return second, first
        return first, second

    def _heard(self, lane: UpstreamRequest) -> Chunks:
        async def take(chunk: Chunk) -> None:
            assert self._taker is not None
            if self._speaker is None and (chunk.text or chunk.openai is not None):
                self._speaker = lane
                self._spoken.set()
            if self._speaker is lane:
                await self._taker(chunk)

        return take


async def _awaited(asking: Awaitable[None]) -> None:
    await asking
