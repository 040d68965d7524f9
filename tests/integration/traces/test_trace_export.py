"""Traces on their way to an endpoint that is away, refuses one of them, or is no collector."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import event_headers
from hocket.kit.postgres.database import connect_pool
from hocket.kit.traces import reads
from hocket.kit.traces.assembly import Trace
from hocket.kit.traces.reads import TraceRows
from hocket.ledger.traces import export, otlp
from hocket.ledger.traces.export import TraceExport, TraceMetrics
from hocket.ledger.traces.otlp import OtlpSender
from hocket.schemas import ids, subjects
from hocket.schemas.tracing.sampling import SamplingRule
from hocket.schemas.tracing.spans import Span
from support.traces.otlp_receiver import Receiver, running_receiver

ALL = SamplingRule(1.0, 0, Decimal(0))
BOUND_S = 30.0
RUN = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
                        accepted_at, deadline_at, finished_at)
VALUES ($1, 0, 'acme', 'p', 1, 'succeeded', 'standard', '{}', now(), now() + '1 h', now() + '1 s')
"""
STEPS = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, finished_at)
SELECT $1, 's' || n, 's', 'llm', 'leaf', 'succeeded', 1, now(), now() FROM generate_series(1, $2) n
"""


@asynccontextmanager
async def exporting(
    bus: Bus,
    database_url: str,
    receiver: Receiver,
    *,
    settle_s: float = 0.0,
    rule: SamplingRule = ALL,
) -> AsyncIterator[tuple["asyncpg.Pool[asyncpg.Record]", CollectorRegistry]]:
    pool = await connect_pool(database_url, size=2, name="test")
    registry = CollectorRegistry()
    metrics = TraceMetrics(registry)
    exporter = TraceExport(bus, pool, rule, OtlpSender(receiver.url), metrics, settle_s=settle_s)
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


async def stored(
    pool: "asyncpg.Pool[asyncpg.Record]",
    name: str,
    *,
    steps: int = 0,
    below: str | None = None,
    status: str = "succeeded",
) -> str:
    """Store an ended run; `below`: the run that it is a sub-run of."""
    run_id = ids.run_id("acme", name)
    await pool.execute(RUN, run_id)
    if below is not None:
        parent = json.dumps({"run_id": ids.run_id("acme", below), "step": "s1", "attempt": 1})
        await pool.execute("UPDATE hocket.run SET parent = $2 WHERE run_id = $1", run_id, parent)
    await pool.execute("UPDATE hocket.run SET status = $2 WHERE run_id = $1", run_id, status)
    await pool.execute(STEPS, run_id, steps)
    return run_id


async def ends(bus: Bus, pool: "asyncpg.Pool[asyncpg.Record]", name: str, *, steps: int = 0) -> str:
    """Store a run and tell of its end."""
    run_id = await stored(pool, name, steps=steps)
    await told(bus, run_id)
    return run_id


async def told(bus: Bus, run_id: str) -> None:
    headers = event_headers("hocket.run.finished", "test", f"{run_id}:end", subject=run_id)
    await bus.publish(subjects.event("acme", "p", "run-finished"), b"{}", headers=headers)


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


async def test_a_trace_is_sent_once_with_the_run_at_the_top_also_if_only_a_run_below_failed(
    bus: Bus, database_url: str
) -> None:
    errors = SamplingRule(0.0, 0, Decimal(0))
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver, rule=errors) as (pool, seen),
    ):
        top = await stored(pool, "top", steps=2)
        middle = await stored(pool, "middle", below="top")
        lowest = await stored(pool, "lowest", below="middle", status="failed")
        other = await stored(pool, "other", steps=1)
        well = await stored(pool, "well", below="other")
        failed = await stored(pool, "failed", status="failed")
        for run_id in (lowest, middle, well, other, top, failed):
            await told(bus, run_id)
        await receiver.until(traces=2)
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_exported_total", reason="error") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert set(receiver.traces()) == {ids.trace_id(run) for run in (top, failed)}
    sent = [span.span_id for span in receiver.spans]
    assert len(sent) == len(set(sent)) == (3 + 2) + 1


async def test_spans_that_the_endpoint_refuses_are_counted(bus: Bus, database_url: str) -> None:
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver) as (pool, seen),
    ):
        receiver.rejected = 1
        await ends(bus, pool, "whole")
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_dropped_total") < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert count(seen, "hocket_traces_exported_total", reason="sampled") == 0
        assert count(seen, "hocket_spans_exported_total") == 0
        await ends(bus, pool, "partly", steps=3)
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_exported_total", reason="sampled") < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert count(seen, "hocket_spans_refused_total") == 2
        assert count(seen, "hocket_spans_exported_total") == 3
        assert len(receiver.traces()) == 2  # and none is tried again


async def test_a_trace_that_cannot_be_read_costs_no_other_its_place(
    bus: Bus, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = ids.run_id("acme", "bad")

    async def read_rows(pool: "asyncpg.Pool[asyncpg.Record]", run_ids: Sequence[str]) -> TraceRows:
        if bad in run_ids:  # its sub-runs are too many for the time
            await pool.fetchval("SELECT pg_sleep(60)", timeout=0.5)
        return await reads.read_rows(pool, run_ids)

    monkeypatch.setattr(export, "read_rows", read_rows)
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver, settle_s=1.0) as (pool, seen),
    ):
        names = ("bad", "a", "b", "c")
        await asyncio.gather(*(ends(bus, pool, name) for name in names))
        await receiver.until(traces=3)
        async with asyncio.timeout(BOUND_S):
            while count(seen, "hocket_traces_dropped_total") < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert ids.trace_id(bad) not in receiver.traces()


async def test_what_one_run_has_too_much_is_not_missing_from_another(
    bus: Bus, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_STEPS", 20)
    async with (
        running_receiver() as receiver,
        exporting(bus, database_url, receiver, settle_s=1.0) as (pool, _),
    ):
        runs = {name: await ends(bus, pool, name) for name in ("long", "short")}
        await pool.execute(STEPS, runs["long"], 30)
        await pool.execute(STEPS, runs["short"], 3)
        await receiver.until(traces=2)
    spans = receiver.traces()
    assert len(spans[ids.trace_id(runs["short"])]) == 1 + 3
    assert 1 + 20 <= len(spans[ids.trace_id(runs["long"])]) <= 1 + 30


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + 400_000 * b"x", id="too long"),
        pytest.param(b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\n\r\n", id="redirect"),
        pytest.param(b"HTTP/1.1 429 No\r\nRetry-After: 1e300\r\n\r\n", id="try much later"),
        pytest.param(
            b"HTTP/1.1 429 No\r\nRetry-After: -inf\r\n\r\n",
            id="try at no time",
            marks=pytest.mark.long,
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", id="broken off"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another protocol"),
        pytest.param(b"", id="nothing", marks=pytest.mark.long),
    ],
)
async def test_an_answer_that_is_no_collectors_is_no_success(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = OtlpSender(f"http://127.0.0.1:{port}/v1/traces")
        span = Span("1" * 32, "2" * 16, None, "r", "a", "internal", "worker", 1, 2)
        trace = Trace("r", "1" * 32, (span,))
        async with asyncio.timeout(BOUND_S):
            assert not (await sender.send([trace])).accepted
        sender.close()


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", b"x", id="body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: ", b"x", id="header"),
        pytest.param(b"", b"H", id="status"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="continue"),
    ],
)
async def test_an_answer_that_drips_ends_with_its_time(
    begin: bytes, drop: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 1.0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        with suppress(ConnectionError):
            while True:
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.05)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = OtlpSender(f"http://127.0.0.1:{port}/v1/traces")
        span = Span("1" * 32, "2" * 16, None, "r", "a", "internal", "worker", 1, 2)
        async with asyncio.timeout(BOUND_S):
            assert not (await sender.send([Trace("r", "1" * 32, (span,))])).accepted
        sender.close()
