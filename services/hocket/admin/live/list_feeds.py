"""Updates for open lists of runs: gathered, read and rendered once for all who watch the same list.

On a busy platform, more runs change than a list can show. A list is therefore told only of the latest
ones, and all lists together use SHARE of the process's time, divided equally among tenants. Changes that
happen meanwhile are gathered and sent together.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager

import structlog

from hocket.admin.live.live_events import ListFilter, LiveEvents, Watch
from hocket.admin.live.run_news import RunNews
from hocket.kit.postgres.errors import STATEMENT_ERRORS

GATHER_S = 0.1
"""The minimum time for which changes are gathered."""
SHARE = 0.04
"""The maximum share of its time that a process spends on open lists."""
SEND_S = 0.000_22
"""The cost assumed for sending to one follower."""
MAX_RUNS = 50
"""How many runs a list is told of at once: those that changed last."""
MAX_QUEUED = 4
"""Parts queued for one follower; beyond that the oldest is dropped, and LEFT_OUT is sent first."""
LEFT_OUT = b'event: rows\ndata: {"lines": "", "left_out": true}\n\n'
"""Tells a list that other runs have changed than those it is told of."""

Make = Callable[[Sequence[str], bool], Awaitable[bytes]]
"""Returns the event for these runs; the second argument tells whether other changed runs were left
out."""

AWAY: tuple[type[BaseException], ...] = (TimeoutError, OSError, *STATEMENT_ERRORS)

log = structlog.get_logger(__name__)


class Latest(Watch):
    """Which runs have changed: the latest MAX_RUNS of them."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.runs: dict[str, None] = {}
        self.left_out = False

    def put(self, news: RunNews) -> None:
        """Record a run as the one that changed last."""
        self.runs.pop(news.run_id, None)
        self.runs[news.run_id] = None
        if len(self.runs) > MAX_RUNS:
            del self.runs[next(iter(self.runs))]
            self.left_out = True
        self.arrived.set()

    def taken(self) -> tuple[Sequence[str], bool]:
        """Return the runs and whether others were left out, and start over."""
        runs, left_out = tuple(self.runs), self.left_out
        self.runs, self.left_out = {}, False
        self.arrived.clear()
        return runs, left_out


class Follower:
    """What still has to be sent to one watcher of a list."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque(maxlen=MAX_QUEUED)
        self._dropped = False
        self._arrived = asyncio.Event()
        self.has_ended = False

    def put(self, part: bytes) -> None:
        """Add something to send."""
        self._dropped = self._dropped or len(self._parts) == MAX_QUEUED
        self._parts.append(part)
        self._arrived.set()

    def end(self) -> None:
        """End the stream."""
        self.has_ended = True
        self._arrived.set()

    async def next(self, quiet_s: float) -> bytes:
        """Return what there is to send; empty after `quiet_s` without anything."""
        try:
            async with asyncio.timeout(quiet_s):
                await self._arrived.wait()
        except TimeoutError:
            return b""
        self._arrived.clear()
        parts = b"".join([LEFT_OUT, *self._parts] if self._dropped else self._parts)
        self._parts.clear()
        self._dropped = False
        return parts


class ListFeeds:
    """The lists open at one process."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, Hashable], _Feed] = {}
        self._of_tenant: Counter[str] = Counter()

    @asynccontextmanager
    async def following(
        self, live: LiveEvents, tenant: str, key: Hashable, wanted: ListFilter, make: Make
    ) -> AsyncIterator[Follower]:
        """Follow a list while the block lasts; followers for whom `make` gives the same result share a
        `key`."""
        place = (tenant, key)
        feed = self._feeds.get(place)
        if feed is None or feed.has_ended:
            feed = _Feed(live, tenant, wanted, make, lambda: self._share(tenant))
            self._feeds[place] = feed
            self._of_tenant[tenant] += 1
        follower = Follower()
        feed.followers.add(follower)
        try:
            yield follower
        finally:
            feed.followers.discard(follower)
            if not feed.followers:
                if self._feeds.get(place) is feed:
                    del self._feeds[place]
                feed.stop()
                self._of_tenant[tenant] -= 1
                if not self._of_tenant[tenant]:
                    del self._of_tenant[tenant]

    def _share(self, tenant: str) -> float:
        return SHARE / len(self._of_tenant) / self._of_tenant[tenant]


class _Feed:
    """One list, from its first follower until the last one leaves."""

    def __init__(
        self,
        live: LiveEvents,
        tenant: str,
        wanted: ListFilter,
        make: Make,
        share: Callable[[], float],
    ) -> None:
        self.followers: set[Follower] = set()
        self._make = make
        self._share = share
        self._task = asyncio.create_task(self._run(live, tenant, wanted), name="list-feed")

    @property
    def has_ended(self) -> bool:
        """Whether it sends nothing more."""
        return self._task.done()

    def stop(self) -> None:
        """Stop it, because it has no followers left."""
        self._task.cancel()

    async def _run(self, live: LiveEvents, tenant: str, wanted: ListFilter) -> None:
        try:
            with live.watch_list(tenant, wanted, Latest) as watch:
                while True:
                    await watch.arrived.wait()
                    if watch.ended is not None:
                        return
                    await asyncio.sleep(GATHER_S)
                    cost_s = await self._tell(*watch.taken())
                    await asyncio.sleep(max(0.0, cost_s / self._share() - GATHER_S))
        finally:
            for follower in self.followers:
                follower.end()

    async def _tell(self, runs: Sequence[str], left_out: bool) -> float:
        """Send runs to all followers; return the time that took, in seconds."""
        began_s = time.perf_counter()
        try:
            part = await self._make(runs, left_out)
        except AWAY as error:
            log.warning("list_not_read", reason=str(error) or repr(error))
            return time.perf_counter() - began_s
        for follower in self.followers:
            follower.put(part)
        return time.perf_counter() - began_s + SEND_S * len(self.followers)
