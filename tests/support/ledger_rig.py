"""A ledger in the test's process, records for it, and functions that wait for the results."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import asyncpg
from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.record_pull import DURABLE
from hocket.kit.process.lifecycle import Health
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.intake import ANNOUNCED, BOOKED, Intake
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import (
    Attribution,
    CallOpened,
    CallRefused,
    UsageRecord,
)

BOUND_S = 60.0
STARTED_MS = 1_800_000_000_000.0


def record(call_id: str, **fields: Any) -> UsageRecord:
    return UsageRecord.model_validate(
        {
            "call_id": call_id,
            "attribution": Attribution(pipeline="report", run_id="r1"),
            "model": "writer",
            "backend": "b",
            "status": "ok",
            "cost_usd": Decimal("0.0001"),
            "started_at_ms": STARTED_MS,
            "latency_ms": 12.5,
            **fields,
        }
    )


async def publish(
    bus: Bus, payloads: Iterable[bytes], subject: str = subjects.USAGE_SUBJECT
) -> None:
    """Publish without message ids, so that the broker does not deduplicate in place of the ledger."""
    posted = []
    for payload in payloads:
        await bus.wait_for_capacity()
        posted.append(bus.publish_durable(subject, payload))
    await asyncio.gather(*posted)


def encoded(*records: UsageRecord) -> list[bytes]:
    return [one.model_dump_json().encode() for one in records]


@asynccontextmanager
async def running_ledger(
    bus: Bus,
    pool: asyncpg.Pool,
    health: Health | None = None,
    seals: Capabilities | None = None,
    registry: CollectorRegistry | None = None,
    ack_wait_ms: float = 1_000.0,
) -> AsyncIterator[None]:
    """Run a ledger's intakes. A test that counts dead letters waits longer for acknowledgements, because
    a record that is delivered again may be buried again."""
    stopping = asyncio.Event()
    metrics, writing = LedgerMetrics(registry or CollectorRegistry()), asyncio.Lock()
    intakes = [
        Intake(
            bus,
            pool,
            health or Health(),
            metrics,
            source,
            writing=writing,
            seals=seals,
            ack_wait_ms=ack_wait_ms,
        )
        for source in (BOOKED, ANNOUNCED)
    ]
    tasks = [asyncio.create_task(intake.run(stopping)) for intake in intakes]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(asyncio.gather(*tasks), BOUND_S)


async def drained(bus: Bus) -> None:
    """Wait until the ledger has acknowledged every record."""

    async def empty() -> bool:
        info = await bus.js.stream_info(subjects.USAGE)
        return not info.state.messages

    await until(empty)


async def heard(bus: Bus) -> None:
    """Wait until the ledger has acknowledged every announcement."""

    async def all_of_them() -> bool:
        info = await bus.js.stream_info(subjects.CALLS)
        try:
            consumer = await bus.js.consumer_info(subjects.CALLS, DURABLE)
        except NotFoundError:  # the ledger creates it when it starts
            return False
        return consumer.ack_floor.stream_seq >= info.state.last_seq

    await until(all_of_them)


def connected(bus: Bus) -> Callable[[], Awaitable[bool]]:
    async def is_connected() -> bool:
        return bus.connected

    return is_connected


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await holds():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.01)


async def rows(pool: asyncpg.Pool) -> list[asyncpg.Record]:
    return list(await pool.fetch("SELECT * FROM hocket.usage ORDER BY call_id"))


def opened(call_id: str, **fields: Any) -> CallOpened:
    return CallOpened.model_validate(
        {
            "call_id": call_id,
            "attribution": Attribution(pipeline="report", run_id="r1", node="draft"),
            "model": "writer",
            "backend": "b",
            "gateway": "host:7",
            "expected_usd": Decimal("0.002"),
            "started_at_ms": STARTED_MS,
            "deadline_at_ms": STARTED_MS + 60_000,
            **fields,
        }
    )


def as_json(*messages: CallOpened | CallRefused | UsageRecord) -> list[bytes]:
    return [one.model_dump_json().encode() for one in messages]
