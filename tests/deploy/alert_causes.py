"""Causes for the alerts of deploy/monitoring/rules.yaml.

Each is something that really happens to the running platform, and ends when its context is left. No
metric is written by hand."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from deploy.monitored_platform import MAX_RUNS, MonitoredPlatform
from hocket.kit.embedded.ports import LOOPBACK
from hocket.schemas import subjects

TENANT = "default"
UNSTORABLE = "no-postgres-stores-this"
TENANTS = MAX_RUNS + 20
CALLS_OF_BULK = 1_500
ITEMS = 100
FULL_BYTES = 64 * 1024
"""Size of the usage records that USAGE holds before its bound is lowered to just above them."""
CONNECTIONS = 84
COUNTED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
CLOSED_PORT = 9
LOCKED_S = 1.6
"""A commit must wait for more than a second."""

SLEEP = {"type": "python", "handler": "hocket.workers.builtin:sleep"}
LLM = {"type": "llm", "prompt": "say yes", "max_tokens": 5}
GIVEN: dict[str, Any] = {"type": "object"}


def pipelines() -> list[dict[str, Any]]:
    def of(name: str, node: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"pipeline": name, "slo_ms": 60_000, "input": GIVEN, "nodes": {"one": node}, **more}

    over = {"over": f"{{{{ range({ITEMS}) | list }}}}", "max_items": ITEMS}
    return [
        *(
            of(f"sleep_{name}", {**SLEEP, "with": {"seconds": 0.02}}, **{"class": name})
            for name in ("interactive", "standard", "batch")
        ),
        of("long", {**SLEEP, "with": {"seconds": 1}}, **{"class": "interactive"}),
        of("says", {**LLM, "model": "good"}),
        of("dear", {**LLM, "model": "dear"}),
        of("asks", {**LLM, "model": "away"}),
        of("bulk", {**LLM, "model": "good", "map": over}, slo_ms=600_000),
    ]


async def submit(
    at: MonitoredPlatform, pipeline: str, body: Any = None, *, tenant: str = TENANT
) -> None:
    """Publish a task, and wait until it is stored."""
    payload = json.dumps(body if body is not None else {}).encode()
    await at.client.jetstream(timeout=10).publish(subjects.task(tenant, pipeline), payload)


@asynccontextmanager
async def repeated(at: MonitoredPlatform, pipeline: str, pause_s: float) -> AsyncIterator[None]:
    """Submit tasks of a pipeline without end."""

    async def go_on() -> None:
        while True:
            await submit(at, pipeline)
            await asyncio.sleep(pause_s)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def away(at: MonitoredPlatform, name: str) -> AsyncIterator[None]:
    """Kill a process and do not restart it."""
    process = at.platform.process(name)
    await process.kill(restart=False)
    try:
        yield
    finally:
        await process.start()
        await process.wait_ready()
        at.write_targets()


@asynccontextmanager
async def frozen(*pids: int) -> AsyncIterator[None]:
    """Suspend processes."""
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


@asynccontextmanager
async def no_worker(at: MonitoredPlatform) -> AsyncIterator[None]:
    async with away(at, "worker"):
        yield


@asynccontextmanager
async def no_coordinator(at: MonitoredPlatform) -> AsyncIterator[None]:
    async with away(at, "coordinator"):
        yield


@asynccontextmanager
async def model_away(at: MonitoredPlatform) -> AsyncIterator[None]:
    async with repeated(at, "asks", 0.1):
        yield
    await at.comes_back(repeated(at, "asks", 1.0))


@asynccontextmanager
async def receiver_away(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Let nothing listen where a webhook sends to."""
    api = at.platform.api()
    webhook = {"url": f"http://{LOOPBACK}:{CLOSED_PORT}/"}
    await asyncio.to_thread(partial(api.put, "/v1/webhooks/away", webhook))
    yield
    await asyncio.to_thread(api.delete, "/v1/webhooks/away")


@asynccontextmanager
async def dear_model(at: MonitoredPlatform) -> AsyncIterator[None]:
    async with repeated(at, "dear", 0.2):
        yield


@asynccontextmanager
async def more_than_slots(at: MonitoredPlatform) -> AsyncIterator[None]:
    for _ in range(50):
        await submit(at, "long")
    yield


@asynccontextmanager
async def many_tenants(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Submit more runs than a coordinator may hold, for tenants of which none has many."""
    spec = {
        "pipeline": "nap",
        "input": GIVEN,
        "nodes": {"one": {**SLEEP, "with": {"seconds": 0.5}}},
    }
    names = [f"tenant-{number}" for number in range(TENANTS)]
    with ThreadPoolExecutor(4) as threads:
        apply = (partial(at.platform.api(name).post, "/v1/pipelines", spec) for name in names)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(threads, one) for one in apply))
    for name in names:
        await submit(at, "nap", tenant=name)
    yield


@asynccontextmanager
async def postgres_frozen(at: MonitoredPlatform) -> AsyncIterator[None]:
    pid = at.servers.postgres.pid
    async with frozen(pid, *_children(pid)):
        yield


@asynccontextmanager
async def rows_locked(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Lock the runs again and again, as a careless migration would."""

    async def go_on() -> None:
        connection = await asyncpg.connect(at.servers.database_url)
        try:
            while True:
                async with connection.transaction():
                    await connection.execute("LOCK TABLE hocket.run IN SHARE MODE")
                    await asyncio.sleep(LOCKED_S)
                await asyncio.sleep(0.1)
        finally:
            connection.terminate()

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def rows_refused(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Submit a run with a value that only Postgres rejects."""
    connection = await asyncpg.connect(at.servers.database_url)
    await connection.execute(
        f"ALTER TABLE hocket.run ADD CONSTRAINT fault CHECK (input::text NOT LIKE '%{UNSTORABLE}%')"
    )
    await submit(at, "sleep_batch", {"x": UNSTORABLE})
    yield
    await connection.execute("ALTER TABLE hocket.run DROP CONSTRAINT fault")
    await connection.close()


@asynccontextmanager
async def many_connections(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Take most connections, as another program might."""
    taken: list[asyncpg.Connection[asyncpg.Record]] = []
    try:
        while len(taken) < CONNECTIONS:
            taken.append(await asyncpg.connect(at.servers.database_url))
            if await taken[0].fetchval(COUNTED) > CONNECTIONS:
                break
        yield
    finally:
        for one in taken:
            one.terminate()


@asynccontextmanager
async def forged_usage(at: MonitoredPlatform) -> AsyncIterator[None]:
    await at.client.jetstream().publish(subjects.USAGE_SUBJECT, b'{"cost_usd": "1000"}')
    yield


@asynccontextmanager
async def usage_full(at: MonitoredPlatform) -> AsyncIterator[None]:
    """Suspend the ledger and fill its stream. Afterwards the calls must still be booked."""
    manager = at.client.jsm()
    config = (await manager.stream_info(subjects.USAGE)).config
    bound = config.max_bytes
    async with frozen(at.platform.process("ledger").pid):
        for _ in range(CALLS_OF_BULK // ITEMS):
            await submit(at, "bulk")
        async with asyncio.timeout(120):
            while (held := (await manager.stream_info(subjects.USAGE)).state.bytes) < FULL_BYTES:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        # relative to what it holds: a busy gateway posts more at once than fits into a small bound
        config.max_bytes = int(1.1 * held)
        await manager.update_stream(config)
        yield
        config.max_bytes = bound
        await manager.update_stream(config)
    booked = "SELECT count(DISTINCT call_id) FROM hocket.usage WHERE pipeline = 'bulk'"
    connection = await asyncpg.connect(at.servers.database_url)
    async with asyncio.timeout(120):
        while await connection.fetchval(booked) < CALLS_OF_BULK:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await connection.close()


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _signal(pids: tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass(frozen=True)
class Cause:
    """Something that happens, and the alerts that must fire meanwhile."""

    told: str
    happens: Callable[[MonitoredPlatform], AbstractAsyncContextManager[None]]
    alerts: frozenset[str]


def _cause(
    told: str,
    happens: Callable[[MonitoredPlatform], AbstractAsyncContextManager[None]],
    *names: str,
) -> Cause:
    return Cause(told, happens, frozenset(f"Hocket{name}" for name in names))


CAUSES = (
    _cause(
        "a model's server is away", model_away,
        *("BreakerOpen", "ModelsFail", "DeadlinesMissedFast", "DeadlinesMissedSlow"),
    ),
    _cause("a webhook's receiver is away", receiver_away, "WebhooksFail"),
    _cause("a dear model is asked all the time", dear_model, "SpendsTooMuch"),
    _cause("50 tasks of a second for two slots", more_than_slots, "InteractiveStepsWait"),
    _cause("the only worker is killed", no_worker, "ProcessDown", "StepsWithoutWorkers"),
    _cause("the only coordinator is killed", no_coordinator, "NoPartitionOwned"),
    _cause("Postgres hangs", postgres_frozen, "ComponentUnwell"),
    _cause("more tenants' runs than a coordinator may hold", many_tenants, "IntakePaused"),
    _cause("a lock on the runs, again and again", rows_locked, "CommitsSlow"),
    _cause("Postgres refuses the rows of a run", rows_refused, "SetAside"),
    _cause("84 of Postgres' 100 connections are taken", many_connections, "PostgresConnections"),
    _cause("a forged usage record", forged_usage, "LedgerRefuses"),
    _cause("USAGE is full, 1,500 calls are made", usage_full, "StreamFillsUp", "UsageNotBooked"),
)  # fmt: skip
