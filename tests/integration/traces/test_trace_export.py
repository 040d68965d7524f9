"""Traces on their way to an endpoint that is away, or that refuses one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import asyncpg
from prometheus_client import CollectorRegistry

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import event_headers
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.traces.export import TraceExport, TraceMetrics
from hocket.ledger.traces.otlp import OtlpSender
from hocket.schemas import ids, subjects
from hocket.schemas.tracing.sampling import SamplingRule
from support.traces.otlp_receiver import Receiver, running_receiver

ALL = SamplingRule(1.0, 0, Decimal(0))
BOUND_S = 30.0
RUN = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
                        accepted_at, deadline_at, finished_at)
VALUES ($1, 0, 'acme', 'p', 1, 'succeeded', 'standard', '{}', now(), now() + '1 h', now() + '1 s')
"""


@asynccontextmanager
async def exporting(
    bus: Bus, database_url: str, receiver: Receiver
) -> AsyncIterator[tuple["asyncpg.Pool[asyncpg.Record]", CollectorRegistry]]:
    pool = await connect_pool(database_url, size=2, name="test")
    registry = CollectorRegistry()
    metrics = TraceMetrics(registry)
    exporter = TraceExport(bus, pool, ALL, OtlpSender(receiver.url), metrics, settle_s=0.0)
    stopping = asyncio.Event()
    running = asyncio.create_task(exporter.run(stopping))
    try:
        async with asyncio.timeout(BOUND_S):
            while not await bus.js.consumers_info(subjects.EVENTS):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield pool, registry
    finally:
        stopping.set()
        await running
        await pool.close()


async def ends(bus: Bus, pool: "asyncpg.Pool[asyncpg.Record]", name: str) -> str:
    run_id = ids.run_id("acme", name)
    await pool.execute(RUN, run_id)
    headers = event_headers("hocket.run.finished", "test", f"{run_id}:end", subject=run_id)
    await bus.publish(subjects.event("acme", "p", "run-finished"), b"{}", headers=headers)
    return run_id


def count(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


async def test_no_trace_is_lost_while_the_endpoint_is_away(bus: Bus, database_url: str) -> None:
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver) as (pool, seen),
    ):
        receiver.status = 400  # not one that the library tries again by itself
        runs = [await ends(bus, pool, f"k{n}") for n in range(5)]
        async with asyncio.timeout(BOUND_S):
            while receiver.refused < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        receiver.status = 200
        await receiver.until(traces=5)
        assert set(receiver.traces()) == {ids.trace_id(run) for run in runs}
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_exported_total", reason="sampled") < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert count(seen, "hocket_traces_dropped_total") == 0
        info = await bus.js.consumer_info(subjects.EVENTS, "ledger")
        assert info.num_pending == 0


async def test_a_trace_that_is_refused_holds_up_no_other(bus: Bus, database_url: str) -> None:
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver) as (pool, seen),
    ):
        receiver.refused_runs.add(ids.run_id("acme", "bad"))
        names = ("a", "bad", "b", "c")
        runs = await asyncio.gather(*(ends(bus, pool, name) for name in names))
        await receiver.until(traces=3)
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_dropped_total") < 1:
                # where it stood alone it is refused again until others come
                await ends(bus, pool, f"more{len(receiver.spans)}")
                await asyncio.sleep(0.2)
        assert ids.trace_id(runs[1]) not in receiver.traces()
