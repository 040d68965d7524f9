"""Reads the platform's parts: from Postgres, from workers' announcements, and from NATS."""

from typing import Any

from hocket.admin.node_types.registry import NodeTypes
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.administration.platform_parts import (
    Partition,
    PartitionList,
    Queue,
    QueueList,
    Tenant,
    TenantList,
    Worker,
    WorkerList,
    WorkerPool,
)
from hocket.schemas.pipeline.spec import WORKER_TYPES
from hocket.schemas.subjects import DEFAULT_QUEUE, LANES, pool_token, type_of

LIST_TIMEOUT_MS = 5_000.0
NS_PER_S = 1_000_000_000
MAX_CONSUMERS = 10_000
"""The maximum number of step queues listed."""

TENANTS = """
WITH RECURSIVE running(tenant) AS (
    (SELECT min(tenant) FROM hocket.run WHERE tenant > $1)
    UNION ALL
    SELECT (SELECT min(tenant) FROM hocket.run WHERE tenant > running.tenant)
    FROM running WHERE running.tenant IS NOT NULL
)
(SELECT tenant FROM running WHERE tenant IS NOT NULL LIMIT $2)
UNION (SELECT DISTINCT tenant FROM hocket.pipeline WHERE tenant > $1 ORDER BY 1 LIMIT $2)
UNION (SELECT DISTINCT tenant FROM hocket.api_key WHERE tenant > $1 ORDER BY 1 LIMIT $2)
ORDER BY 1 LIMIT $2
"""
"""Tenants with runs, pipelines or keys. The index of runs is probed once per tenant, however many runs
it has."""

PARTITIONS = """
SELECT p.partition, p.owner, p.epoch, p.applied_seq, p.updated_at,
       (SELECT count(*) FROM hocket.run r
        WHERE r.partition = p.partition AND r.finished_at IS NULL) AS open_runs
FROM hocket.partition p ORDER BY p.partition
"""


async def tenants(pool: Pool, after: str, limit: int) -> TenantList:
    """Return a page of tenants, sorted by name."""
    rows = await pool.fetch(TENANTS, after, limit + 1, timeout=QUERY_TIMEOUT_S)
    page = tuple(Tenant(tenant=row["tenant"]) for row in rows[:limit])
    return TenantList(tenants=page, next=page[-1].tenant if len(rows) > limit else None)


async def partitions(pool: Pool) -> PartitionList:
    """Return the partitions with their owners."""
    rows = await pool.fetch(PARTITIONS, timeout=QUERY_TIMEOUT_S)
    return PartitionList(partitions=tuple(Partition(**dict(row)) for row in rows))


def workers(types: NodeTypes, after: str, limit: int) -> WorkerList:
    """Return a page of the workers heard within the last seconds."""
    known = dict(types.types.slots.workers())
    names = sorted(name for name in known if name > after)
    page = tuple(
        Worker(
            worker=name,
            pools=tuple(
                WorkerPool(type=type_of(pool), queue=_queue_of(pool), slots=slots)
                for pool, slots in sorted(known[name].items())
            ),
        )
        for name in names[:limit]
    )
    return WorkerList(workers=page, next=page[-1].worker if len(names) > limit else None)


async def queues(bus: Bus, types: NodeTypes) -> QueueList:
    """Return the step queues with their lag; raise BusUnavailable or TimeoutError."""
    pools = {*WORKER_TYPES, *types.types.names()}
    pools |= {pool for _, slots in types.types.slots.workers() for pool in slots}
    by_token = {pool_token(pool): pool for pool in pools}
    found = []
    for one in await _consumers(bus):
        token, _, lane = str(one["name"]).removeprefix("step-").rpartition("-")
        if lane not in LANES:
            continue
        pool = by_token.get(token, token)
        found.append(
            Queue(
                type=type_of(pool),
                queue=_queue_of(pool),
                lane=lane,
                waiting=one["num_pending"],
                handed_out=one["num_ack_pending"],
                redelivered=one["num_redelivered"],
                asking=one["num_waiting"],
                drained_for_s=one["pause_remaining"] / NS_PER_S if one.get("paused") else None,
            )
        )
    order = {lane: number for number, lane in enumerate(LANES)}
    found.sort(key=lambda queue: (queue.type, queue.queue, order[queue.lane]))
    return QueueList(queues=tuple(found))


async def _consumers(bus: Bus) -> list[dict[str, Any]]:
    """Return the consumers of STEPS as NATS reports them."""
    found: list[dict[str, Any]] = []
    while len(found) < MAX_CONSUMERS:
        asked = {"offset": len(found)}
        page = await bus.api(f"CONSUMER.LIST.{subjects.STEPS}", asked, timeout_ms=LIST_TIMEOUT_MS)
        found += page.get("consumers") or []
        if not page.get("consumers") or len(found) >= page["total"]:
            break
    return found


def _queue_of(pool: str) -> str:
    return pool.partition("@")[2] or DEFAULT_QUEUE
