"""Two requests for one call; the first to answer counts.

States: alone (only the first request is running), joined (a second one is running too), decided
(one has answered or sent its first chunk, and the other is stopped), over. If one fails, the other
is awaited, unless it has no slot yet: it may be waiting for money that the first has reserved. Only
one request, the first to send a chunk, streams to the caller; chunks of the other are dropped.
Stopping the call stops both.
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
FAILED = "the first request failed"
_NOTHING = Completion()


class Announced(Protocol):
    """A request that has been announced."""

    async def first(self) -> bool:
        """Wait until the announcement is stored; return whether it was the first one under its id."""
        ...


@dataclass(eq=False, slots=True)
class UpstreamRequest:
    """One request to one replica, and its result.

    A request without a `slot` was never made. `turn` counts the gateways that started the call
    before this one; `tail` distinguishes the requests of one gateway.
    """

    tail: str
    turn: int = 0
    cancellation: Cancellation = field(default_factory=Cancellation)
    relay: Relay | None = None
    because: str = ""
    slot: Slot | None = None
    prepared: Prepared | None = None
    """The call as rewritten by hooks, if any apply."""
    is_bounded: bool = False
    """Whether the most that it could cost is reserved, so that its answer needs a limit."""
    placed: bool = False
    """Whether it has a slot and is about to be made."""
    announced: Announced | None = None
    before: tuple[str, ...] = ()
    """The replicas asked earlier in this call."""
    started_ms: float = 0.0
    latency_ms: float = 0.0
    completion: Completion = _NOTHING
    error: HocketError | None = None

    @property
    def suffix(self) -> str:
        """The suffix that distinguishes this request's usage record from the call's other records."""
        return (f":t{self.turn}" if self.turn else "") + self.tail

    @property
    def answered(self) -> bool:
        """Whether the request was made and did not fail; meaningful once it is over."""
        return self.slot is not None and self.error is None

    @property
    def lost(self) -> bool:
        """Whether it was stopped because the other lane was faster."""
        return self.cancellation.reason == LOST


Ask = Callable[[UpstreamRequest], Awaitable[None]]
"""Makes a request and fills its lane; raises no HocketError."""


class HedgedRequest:
    """A race of two lanes.

    `behind` is the losing request if it is read on until its backend has reported usage.
    """

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
        """Ask the first lane and, after `delay_ms`, the second; return the lane that counts, and
        the other one if it was asked."""
        first, second = self._lanes
        asking = [asyncio.create_task(_awaited(ask(first)), name="first request")]
        try:
            await asyncio.wait(asking, timeout=delay_ms / 1000)
            if not asking[0].done() and self._speaker is None:
                asking.append(asyncio.create_task(_awaited(join(second)), name="second request"))
                await self._decided(asking)
                self._stop_loser(asking)
            await asyncio.wait(self._not_behind(asking))
        except asyncio.CancelledError:  # the call was stopped
            reason = self._stopped.reason or "the gateway gave up"
            for lane in self._lanes:
                lane.cancellation.cancel(
                    reason, self._stopped.error if self._stopped.asked else None
                )
            await asyncio.wait(asking)
        for task in asking:
            if task is not self.behind:
                task.result()
        return self._result()

    async def _decided(self, asking: list["asyncio.Task[None]"]) -> None:
        """Wait until one lane has answered or begun to stream, or both have failed."""
        spoken = asyncio.create_task(self._spoken.wait(), name="first piece")
        try:
            waiting = {*asking, spoken}
            while waiting - {spoken}:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if spoken in done or any(lane.answered for lane in self._done(asking)):
                    return
                if asking[0].done() and not self._lanes[1].placed:
                    self._lanes[1].cancellation.cancel(FAILED)
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
        """Return the requests to wait for: all but a loser that is read only for its usage."""
        for lane, task in zip(self._lanes, asking, strict=False):
            if lane.lost and lane.cancellation.reads_on:
                self.behind = task
        return [task for task in asking if task is not self.behind]

    def _result(self) -> tuple[UpstreamRequest, UpstreamRequest | None]:
        first, second = self._lanes
        if second.slot is None:
            return first, None
        if self._speaker is not None:  # the caller has what it said, whatever became of it
            counts = self._speaker is second
        else:
            counts = second.answered and not second.lost and (first.lost or not first.answered)
        return (second, first) if counts else (first, second)

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
