"""What every endpoint works with: created once in `__main__` and passed to the app."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import asyncpg
from fastapi import Depends, Request

from hocket.admin.live.list_feeds import ListFeeds
from hocket.admin.live.live_events import LiveEvents
from hocket.admin.node_types.registry import NodeTypes
from hocket.admin.pipelines.compiler import Compiler
from hocket.admin.pipelines.versions import Plans
from hocket.admin.queries import Pool, database_now
from hocket.admin.runs.recent import RecentRuns
from hocket.admin.submission.known_runs import KnownRuns
from hocket.kit.access.secret_box import SecretBox
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.post_batches import PostBatches
from hocket.kit.process.limits.disk_space import UNWATCHED, DiskSpace
from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.pipeline.handlers import AllowedHandlers

EXPORTS_AT_ONCE = 2
"""Pages of exports read at once; at most one per tenant."""
READS_AT_ONCE = 6
READS_OF_TENANT = 3
"""Searches, counts of bulk operations, reports, lists that are put together from many rows, large pages
and deletions of data at once, and those of one tenant: each holds one of the process's few connections
to the database for up to 10 s or more."""
SCHEDULES_AT_ONCE = 4
SCHEDULES_OF_TENANT = 2
"""Requests that compute the times of schedules at once, and those of one tenant: a rare time, such as a
29 February that is a Monday, takes milliseconds of a thread to find."""
TRACES_AT_ONCE = 2
"""Traces built at once, at most one per tenant: a long one occupies a core for seconds."""


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Context:
    """The API's connections and limits. `stopping` ends waits and streams when the process stops."""

    bus: Bus
    pool: Pool
    partitions: int
    max_task_bytes: int
    stopping: asyncio.Event
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, before `stopping`, when the process is asked to stop: it is no longer ready."""
    handlers: AllowedHandlers | None = None
    """The handlers that `python` nodes may name, if this process was told."""
    disk: DiskSpace = UNWATCHED
    capabilities: Capabilities | None = None
    """Proves to the readers of the logs that messages posted here are genuine."""
    reserved: "Pool | None" = None
    """Connections that no request of a tenant takes, for keys and for whether the database answers; by
    default, those are of `pool`, too."""
    usage_seals: Capabilities | None = None
    """Proves to the ledger that usage records redriven here are genuine."""
    plans: Plans = field(default_factory=Plans)
    compiler: Compiler = field(default_factory=Compiler)
    bulk_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a bulk operation was requested."""
    traces: TenantPlaces = field(default_factory=lambda: TenantPlaces(TRACES_AT_ONCE, 1))
    exports: TenantPlaces = field(default_factory=lambda: TenantPlaces(EXPORTS_AT_ONCE, 1))
    long_reads: TenantPlaces = field(
        default_factory=lambda: TenantPlaces(READS_AT_ONCE, READS_OF_TENANT)
    )
    schedule_times: TenantPlaces = field(
        default_factory=lambda: TenantPlaces(SCHEDULES_AT_ONCE, SCHEDULES_OF_TENANT)
    )
    webhooks_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to deliver to a webhook."""
    secrets: SecretBox | None = None
    """Encrypts the stored secrets of webhooks."""
    webhook_private_hosts: frozenset[str] = frozenset()
    """Hosts at private addresses to which webhooks may point."""
    now: Callable[[], datetime] = utc_now
    """The clock of this process."""
    database_now: Callable[["Pool | asyncpg.Connection"], Awaitable[datetime]] = database_now
    """The clock of schedules and webhooks: Postgres's, because several processes decide about the same
    ones, and the clock of one machine may be wrong."""
    schedules_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a schedule was changed, or its task has to be submitted."""
    live: LiveEvents = field(default_factory=LiveEvents)
    lists: ListFeeds = field(default_factory=ListFeeds)
    node_types: NodeTypes = field(default_factory=NodeTypes)
    recent: RecentRuns = field(default_factory=RecentRuns)
    known_runs: KnownRuns = field(default_factory=KnownRuns)
    batches: PostBatches = field(init=False)
    """Publishes many tasks at once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", PostBatches(self.bus))


async def context_of(request: Request) -> Context:
    """Return the context of the app that serves this request. (It is a coroutine although it awaits
    nothing, because the framework would run a plain function in a thread, which takes ten times as
    long.)"""
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


Ctx = Annotated[Context, Depends(context_of)]
