"""What `hocket doctor` says of workers that pipelines need, and of ledgers with another key."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats import offers
from hocket.cli.doctor.nats.connection import connect
from hocket.cli.doctor.nats.keys import usage_keys
from hocket.cli.doctor.nats.offers import offered, unserved, workers
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.spent import SpentDoor
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, keys_of, usage_key_of
from hocket.schemas.messages import WorkerAnnounced
from support.ledger_rig import encoded, publish, record, running_ledger, until

PIPELINE = {
    "pipeline": "sell",
    "nodes": {
        "look": {"type": "crm.lookup"},
        "write": {
            "type": "python",
            "handler": "greet:hello",
            "needs": ["look"],
            "fallback": [{"node": {"type": "python", "handler": "greet:hello", "queue": "gpu"}}],
        },
    },
}


@pytest.fixture
async def connection(bus: Bus, nats_url: str) -> AsyncIterator[Client]:
    connection = await connect(nats_url)
    yield connection
    await connection.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


@asynccontextmanager
async def worker(bus: Bus, name: str, **slots: int) -> AsyncIterator[None]:
    """Answer as workers do when they are asked who is there."""
    announced = WorkerAnnounced(
        worker=name, slots={k.replace("_at_", "@"): v for k, v in slots.items()}
    )

    async def answer(_: Msg) -> None:
        bus.publish_nowait(subjects.WORKER_ANNOUNCED, announced.model_dump_json().encode())

    subscription = await bus.subscribe(subjects.WORKER_ASKED, answer)
    yield
    await subscription.unsubscribe()


async def apply(pool: asyncpg.Pool, version: int, document: dict[str, object]) -> None:
    await pool.execute(
        "INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash)"
        " VALUES ('acme', 'sell', $1, $2, 'x')",
        version,
        json.dumps(document),
    )


async def test_workers_are_counted_by_what_they_announce(bus: Bus, connection: Client) -> None:
    assert workers(await offered(connection)).verdict is Verdict.FAILED
    async with worker(bus, "one", python=4, llm=2), worker(bus, "two", python=4):
        found = workers(await offered(connection))
    assert (found.verdict, found.found) == (Verdict.OK, "2, with slots for llm 2, python 8")


async def test_node_types_that_nobody_runs_are_named_with_the_pipelines_that_need_them(
    bus: Bus, connection: Client, pool: asyncpg.Pool
) -> None:
    await apply(pool, 1, {**PIPELINE, "nodes": {"gone": {"type": "old.type"}}})
    await apply(pool, 2, PIPELINE)
    async with worker(bus, "one", python=4):
        slots = await offered(connection)
    found = await unserved(pool, slots)
    assert [(one.verdict, one.found) for one in found] == [
        (Verdict.NOTE, "no worker runs crm.lookup, which acme/sell would wait for"),
        (Verdict.NOTE, "no worker runs python@gpu, which acme/sell would wait for"),
    ]
    assert found[1].cure == "Start one: hocket serve worker -- --types python@gpu"
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ('r', 0, 'acme', 'sell', 2, 'running', 'standard', '{}', now(), now())"
    )
    assert {one.verdict for one in await unserved(pool, slots)} == {Verdict.FAILED}


def key() -> str:
    return secrets.token_hex(32)


def seals_of(capability_key: str) -> Capabilities:
    return Capabilities(keys_of(usage_key_of(capability_key)))


async def found_by(connection: Client) -> Finding:
    (found,) = await usage_keys(connection)
    return found


async def test_a_ledger_with_another_key_or_without_one_is_found_by_asking(
    bus: Bus, connection: Client, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await usage_keys(connection) == []  # without a key nothing is known
    ours = key()
    monkeypatch.setenv("HOCKET_CAPABILITY_KEY", ours)
    monkeypatch.setattr("hocket.cli.doctor.nats.keys.ANSWER_S", 0.2)
    assert (await found_by(connection)).found == "none responds"
    async with SpentDoor(bus, pool, seals_of(ours)).open():
        monkeypatch.setattr("hocket.cli.doctor.nats.keys.ANSWER_S", 10.0)
        assert (await found_by(connection)).verdict is Verdict.OK
    async with SpentDoor(bus, pool, None).open():
        bare = await found_by(connection)
    assert (bare.verdict, "it may have none" in bare.found) == (Verdict.FAILED, True)
    monkeypatch.setattr("hocket.cli.doctor.nats.keys.ANSWER_S", 0.2)
    async with SpentDoor(bus, pool, seals_of(key())).open():
        other = await found_by(connection)
    assert (other.verdict, "8 of 8 requests" in other.found) == (Verdict.FAILED, True)
    assert "HOCKET_CAPABILITY_KEY" in other.cure


async def test_usage_that_a_ledger_refused_lately_is_told(
    bus: Bus, connection: Client, pool: asyncpg.Pool
) -> None:
    async with running_ledger(bus, pool, seals=seals_of(key())):
        await publish(bus, encoded(record("c1")))

        async def buried() -> bool:
            return bool((await bus.js.stream_info(subjects.DLQ)).state.messages)

        await until(buried)
    found = await found_by(connection)
    assert (found.verdict, "refused usage records" in found.found) == (Verdict.FAILED, True)
    assert "dlq redrive" in found.cure


@asynccontextmanager
async def repeating(bus: Bus, count: int, every_s: float) -> AsyncIterator[None]:
    """Announce `count` workers again and again, each every `every_s`, one after another."""

    async def announce() -> None:
        number = 0
        while True:
            announced = WorkerAnnounced(worker=f"w{number % count}", slots={"python": 8})
            bus.publish_nowait(subjects.WORKER_ANNOUNCED, announced.model_dump_json().encode())
            number += 1
            await asyncio.sleep(every_s / count)

    announcing = asyncio.create_task(announce())
    yield
    announcing.cancel()


async def test_asking_ends_among_many_workers_that_repeat_what_they_announce(
    bus: Bus, connection: Client
) -> None:
    async with repeating(bus, 40, every_s=2.0), asyncio.timeout(30):
        found = workers(await offered(connection))
    assert (found.verdict, found.found) == (Verdict.OK, "40, with slots for python 320")


async def test_asking_ends_soon_after_the_last_worker_that_is_new(
    bus: Bus, connection: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "MAX_LISTENS_S", 600.0)
    async with repeating(bus, 4, every_s=0.4), asyncio.timeout(30):
        assert len(list((await offered(connection)).workers())) == 4


async def test_asking_ends_although_there_is_always_a_new_worker(
    bus: Bus, connection: Client
) -> None:
    async with repeating(bus, 100_000, every_s=10_000.0), asyncio.timeout(30):
        assert workers(await offered(connection)).verdict is Verdict.OK


async def test_asking_ends_when_nobody_answers(connection: Client) -> None:
    async with asyncio.timeout(30):
        assert list((await offered(connection)).workers()) == []
