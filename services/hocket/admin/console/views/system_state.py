"""What the System page shows besides health: partitions, and how much is waiting in each stream."""

import json
from dataclasses import dataclass
from typing import Any

from nats.errors import Error as NatsError
from nats.js.api import ConsumerInfo, StreamInfo

from hocket.admin.console.documents import without_nulls
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.kit.access import audit_log
from hocket.kit.nats.bus import Bus

AUDIT_ROWS = 100
MAX_CONSUMERS = 2_000
PARTITIONS = """
SELECT p.partition, p.owner, p.epoch, p.applied_seq, p.updated_at, count(r.run_id) AS running
FROM hocket.partition p
LEFT JOIN hocket.run r ON r.partition = p.partition AND r.finished_at IS NULL
GROUP BY p.partition
ORDER BY p.partition
LIMIT 1000
"""
"""The owner of each partition, how far its log is applied, and how many of its runs are open."""
AUDIT_FROM = """
SELECT seq FROM hocket.audit WHERE $1::text IS NULL OR tenant = $1 ORDER BY seq DESC OFFSET $2 LIMIT 1
"""
"""The row before the latest ones, of a tenant or of all."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """How much a stream holds. `waiting` messages have not been delivered to its consumers yet, `taken`
    ones are delivered but not acknowledged; None if it has no consumer."""

    name: str
    messages: int
    bytes: int
    consumers: int
    waiting: int | None = None
    taken: int | None = None


async def partitions(pool: Pool) -> list[dict[str, Any]]:
    """Return the partitions, sorted by number."""
    return [dict(row) for row in await pool.fetch(PARTITIONS, timeout=QUERY_TIMEOUT_S)]


async def streams(bus: Bus) -> list[StreamState] | None:
    """Return the state of the streams, or None if NATS does not answer."""
    try:
        found = [info for info in await bus.js.streams_info() if not _is_bucket(info)]
        states = [await _state(bus, info) for info in found]
    except (NatsError, TimeoutError, OSError):
        return None
    return sorted(states, key=lambda state: state.name)


def _is_bucket(info: StreamInfo) -> bool:
    return (info.config.name or "").startswith("KV_")


async def _state(bus: Bus, info: StreamInfo) -> StreamState:
    name = info.config.name or ""
    consumers = await _consumers(bus, name, info.state.consumer_count)
    return StreamState(
        name=name,
        messages=info.state.messages,
        bytes=info.state.bytes,
        consumers=info.state.consumer_count,
        waiting=sum(one.num_pending or 0 for one in consumers) if consumers else None,
        taken=sum(one.num_ack_pending or 0 for one in consumers) if consumers else None,
    )


async def _consumers(bus: Bus, stream: str, number: int) -> list[ConsumerInfo]:
    found: list[ConsumerInfo] = []
    while len(found) < min(number, MAX_CONSUMERS):
        page = await bus.js.consumers_info(stream, offset=len(found))
        if not page:
            break
        found += page
    return found


async def latest_audit(pool: Pool, tenant: str | None) -> list[audit_log.AuditRow]:
    """Return the latest audit rows, latest first."""
    after = await pool.fetchval(AUDIT_FROM, tenant, AUDIT_ROWS, timeout=QUERY_TIMEOUT_S)
    rows = await audit_log.page(pool, after=after or 0, tenant=tenant, limit=AUDIT_ROWS)
    return rows[::-1]


def change_of(row: audit_log.AuditRow) -> dict[str, Any]:
    """Return what an audit row says of before and after, without fields that say nothing."""
    told = (("before", row.before), ("after", row.after))
    found = {name: json.loads(text) for name, text in told if text is not None}
    change: dict[str, Any] = without_nulls(found)
    return change
