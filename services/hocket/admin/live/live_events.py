"""Delivers the facts of EVENTS to clients that follow runs live, each from its own queue.

Queues are bounded. A client that does not read in time loses its queue and is told so (`lagged`); it can
reconnect with its last position, and what it missed is read from the stream. Other clients never wait
for a slow one.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from hocket.admin.live.event_facts import EventFacts, Fact
from hocket.admin.live.run_news import RunNews, news_of
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.schemas.errors import ErrorClass, HocketError

MAX_CLIENTS = 2_048
"""Clients that may follow at once at one process."""
TENANT_SHARE = 0.5
"""The share of them that one tenant may have."""
MAX_QUEUED = 1_000
"""News queued for one client."""
ATTACH_TIMEOUT_S = 5.0
REST_AFTER_S = 30.0
"""How long reading continues after the last client has left; reading has a cost for every step."""
LOOK_S = 5.0
READS_AT_ONCE = 2
"""Concurrent database reads for all clients: when they connect, and at the end of a run. One tenant can
have at most half of them; the same holds for clients that catch up."""
CATCHING_UP_AT_ONCE = 8
"""Clients that may read a portion of the past at once; each uses a consumer at NATS."""


class LiveFull(HocketError):
    """{limit} clients already follow runs at this process. Try again after `Retry-After`, or start
    another API process."""

    code = "live_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class TenantLiveFull(HocketError):
    """{limit} clients of this tenant already follow runs at this process. Try again after
    `Retry-After`, or follow lists instead of single runs."""

    code = "tenant_live_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The runs that a client hears about."""

    pipeline: str | None = None
    status: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def wants(self, news: RunNews) -> bool:
        """Whether the client hears about it."""
        return (
            news.is_notice
            and (self.pipeline is None or self.pipeline == news.pipeline)
            and (self.status is None or self.status == news.status)
            and all(news.labels.get(key) == value for key, value in self.labels.items())
        )


class Watch:
    """The queue of one client. It receives everything after `position`."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.news = deque[RunNews]()
        self.arrived = asyncio.Event()
        self.ended: str | None = None
        """Why the stream ended: `lagged`, `reset` or `stopping`."""

    def put(self, news: RunNews) -> None:
        """Add news, or end the stream if the queue is full."""
        if self.ended is None:
            if len(self.news) >= MAX_QUEUED:
                self.end("lagged")
            else:
                self.news.append(news)
                self.arrived.set()

    def end(self, why: str) -> None:
        """End the stream."""
        self.ended = self.ended or why
        self.news.clear()
        self.arrived.set()


WatchT = TypeVar("WatchT", bound=Watch)


class LiveEvents:
    """The clients of one process and what they follow. Facts are read inside `running`."""

    def __init__(self) -> None:
        self._facts = EventFacts(self._heard, self._rewound)
        self._runs: dict[str, dict[str, set[Watch]]] = {}
        self._lists: dict[str, dict[Watch, ListFilter]] = {}
        self._clients: Counter[str] = Counter()
        self._asked_s = 0.0
        """When a client last began to follow."""
        self.reading = TenantPlaces(READS_AT_ONCE, READS_AT_ONCE // 2)
        self.catching_up = TenantPlaces(CATCHING_UP_AT_ONCE, CATCHING_UP_AT_ONCE // 2)

    @asynccontextmanager
    async def running(self, bus: Bus, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Read facts until the block ends; all streams end when the process stops."""
        tasks = [
            asyncio.create_task(self._facts.run(bus), name="events"),
            asyncio.create_task(self._end_when(stopping), name="live-end"),
            asyncio.create_task(self._rest(), name="live-rest"),
        ]
        try:
            yield
        finally:
            self._end_all("stopping")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @contextmanager
    def place_of(self, tenant: str) -> Iterator[None]:
        """Count a client while the block lasts; raise LiveFull or TenantLiveFull."""
        limit = int(MAX_CLIENTS * TENANT_SHARE)
        if self._clients.total() >= MAX_CLIENTS:
            raise LiveFull(limit=MAX_CLIENTS)
        if self._clients[tenant] >= limit:
            raise TenantLiveFull(limit=limit)
        self._clients[tenant] += 1
        try:
            yield
        finally:
            self._clients[tenant] -= 1
            if not self._clients[tenant]:
                del self._clients[tenant]

    async def until_attached(self) -> None:
        """Start reading facts and wait until that works; raise BusUnavailable if it does not."""
        self._asked_s = asyncio.get_running_loop().time()
        self._facts.want()
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                await self._facts.attached.wait()
        except TimeoutError:
            raise BusUnavailable(reason="the stream EVENTS cannot be read") from None

    @contextmanager
    def watch_run(self, tenant: str, run_id: str) -> Iterator[Watch]:
        """Gather the news of a run while the block lasts."""
        watch = Watch(self._facts.position)
        of_tenant = self._runs.setdefault(tenant, {})
        of_tenant.setdefault(run_id, set()).add(watch)
        try:
            yield watch
        finally:
            of_tenant[run_id].discard(watch)
            if not of_tenant[run_id]:
                del of_tenant[run_id]
            if not of_tenant and self._runs.get(tenant) is of_tenant:
                del self._runs[tenant]

    @contextmanager
    def watch_list(
        self, tenant: str, wanted: ListFilter, kind: Callable[[int], WatchT]
    ) -> Iterator[WatchT]:
        """Gather the news of a tenant's runs while the block lasts."""
        watch = kind(self._facts.position)
        of_tenant = self._lists.setdefault(tenant, {})
        of_tenant[watch] = wanted
        try:
            yield watch
        finally:
            del of_tenant[watch]
            if not of_tenant and self._lists.get(tenant) is of_tenant:
                del self._lists[tenant]

    def _heard(self, fact: Fact) -> None:
        lists, runs = self._lists.get(fact.tenant), self._runs.get(fact.tenant)
        if not lists and not runs:
            return
        for news in news_of(fact):
            for watch in (runs or {}).get(news.run_id, ()):
                watch.put(news)
            if lists and news.is_notice:
                for watch, wanted in lists.items():
                    if wanted.wants(news):
                        watch.put(news)

    def _rewound(self) -> None:
        self._end_all("reset")

    async def _rest(self) -> None:
        """Stop reading some time after the last client has left."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._clients and loop.time() - self._asked_s > REST_AFTER_S:
                self._facts.rest()

    async def _end_when(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._end_all("stopping")

    def _end_all(self, why: str) -> None:
        for lists in list(self._lists.values()):
            for watch in lists:
                watch.end(why)
        for runs in list(self._runs.values()):
            for watches in runs.values():
                for watch in watches:
                    watch.end(why)
