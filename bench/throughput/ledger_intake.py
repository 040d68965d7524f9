"""Compare two readers of usage records: the ledger's own, and FastStream's batch subscriber.

There are three phases per reader: `--records` records that wait in the stream (records/s, CPU per
record), single records 40 ms apart (publish to committed row), and silence (CPU of an idle reader).
Both use the ledger's decoding and INSERT. Readers alternate, so that a busy machine affects them alike.
Prints one JSON line per reader and round; docs/decisions/0002-faststream.md is based on it.

    .venv/bin/python -m bench.throughput.ledger_intake --records 20000 --rounds 3
"""

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import uvloop
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from prometheus_client import CollectorRegistry

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.record_pull import DURABLE, MAX_BATCH
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.migrations import migrate
from hocket.kit.process.lifecycle import Health
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.intake import Intake
from hocket.ledger.records.record import record_of
from hocket.ledger.store import insert
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, UsageRecord

READERS = {"own": None, "faststream-0.02s": 0.02, "faststream-5s": 5.0}
SINGLE_RECORDS = 20
SINGLE_PAUSE_S = 0.04
SILENCE_S = 5.0


async def main(arguments: argparse.Namespace) -> None:
    """Alternate the readers on one pair of servers."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with EmbeddedServers(Path(folder)) as servers:
            await migrate(servers.database_url)
            bus = await Bus.connect(servers.nats_url, name="ledger-intake")
            pool = await connect_pool(servers.database_url, size=3, name="ledger-intake")
            await ensure_streams(bus)
            for round_ in range(arguments.rounds):
                for reader in READERS:
                    prefix = f"{round_}-{reader}"
                    result = await measured(
                        bus, pool, servers.nats_url, reader, prefix, arguments.records
                    )
                    print(json.dumps({"reader": reader, "round": round_, **result}), flush=True)
            await bus.close()
            await pool.close()


async def measured(
    bus: Bus, pool: asyncpg.Pool, nats_url: str, reader: str, prefix: str, records: int
) -> dict[str, float]:
    """Return the figures of one reader."""
    await pool.execute("TRUNCATE hocket.usage")
    waiting = []
    for number in range(records):
        await bus.wait_for_capacity()
        waiting.append(bus.publish_durable(subjects.USAGE_SUBJECT, payload(f"{prefix}-{number}")))
    await asyncio.gather(*waiting)
    started_s, cpu_s = time.perf_counter(), cpu_time_s()
    async with reading(reader, bus, pool, nats_url):
        await rows_are(pool, records, 0.05)
        elapsed_s, cpu_s = time.perf_counter() - started_s, cpu_time_s() - cpu_s
        latencies_ms = []
        singles = SINGLE_RECORDS if READERS[reader] != max(filter(None, READERS.values())) else 4
        for number in range(records, records + singles):
            await asyncio.sleep(SINGLE_PAUSE_S)
            published_s = time.perf_counter()
            await bus.publish(subjects.USAGE_SUBJECT, payload(f"{prefix}-{number}"))
            await rows_are(pool, number + 1, 0.001)
            latencies_ms.append((time.perf_counter() - published_s) * 1000)
        idle_s = cpu_time_s()
        await asyncio.sleep(SILENCE_S)
        idle_s = cpu_time_s() - idle_s
    return {
        "records_per_s": round(records / elapsed_s),
        "cpu_us_per_record": round(cpu_s / records * 1e6, 1),
        "row_after_p50_ms": round(statistics.median(latencies_ms), 1),
        "row_after_max_ms": round(max(latencies_ms), 1),
        "idle_cpu_percent": round(idle_s / SILENCE_S * 100, 2),
    }


@asynccontextmanager
async def reading(reader: str, bus: Bus, pool: asyncpg.Pool, nats_url: str) -> AsyncIterator[None]:
    """Run one reader inside the block."""
    timeout_s = READERS[reader]
    if timeout_s is None:
        stopping = asyncio.Event()
        intake = Intake(bus, pool, Health(), LedgerMetrics(CollectorRegistry()))
        task = asyncio.create_task(intake.run(stopping))
        yield
        stopping.set()
        await task
        return
    broker = NatsBroker(nats_url, logger=None)
    prices = KnownPrices()

    @broker.subscriber(
        subjects.USAGE_SUBJECT,
        stream=JStream(subjects.USAGE, declare=False),
        durable=DURABLE,
        pull_sub=PullSub(batch_size=MAX_BATCH, timeout=timeout_s, batch=True),
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def book(message: NatsMessage) -> None:
        raw: list[object] = message.raw_message  # type: ignore[assignment]
        await insert(pool, [record_of(one.data) for one in raw], prices)  # type: ignore[attr-defined]

    await broker.start()
    yield
    await broker.stop()


async def rows_are(pool: asyncpg.Pool, expected: int, pause_s: float) -> None:
    """Wait until the ledger has `expected` rows."""
    counted = "SELECT count(*) FROM hocket.usage"
    while await pool.fetchval(counted) < expected:  # noqa: ASYNC110 - nothing signals a new row
        await asyncio.sleep(pause_s)


def payload(call_id: str) -> bytes:
    """Return a usage record of typical size."""
    record = UsageRecord(
        call_id=call_id,
        attribution=Attribution(pipeline="report", version=1, run_id="r" * 25, node="draft"),
        model="writer",
        backend="gpu-a",
        status="ok",
        input_tokens=1200,
        output_tokens=80,
        started_at_ms=1_800_000_000_000.0,
        latency_ms=850.0,
    )
    return record.model_dump_json().encode()


def cpu_time_s() -> float:
    """Return the CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    uvloop.run(main(parser.parse_args()))
