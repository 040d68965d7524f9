"""Records that the ledger cannot store as they come: nobody waits for them, what was spent is booked."""

import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.store import sweep
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution
from support.ledger_rig import (
    STARTED_MS,
    as_json,
    drained,
    encoded,
    heard,
    opened,
    publish,
    record,
    rows,
    running_ledger,
)

COST_USD = Decimal("0.0001")
PATIENT_MS = 60_000.0
LONG = "x" * 6_000
UNINDEXABLE = "".join(random.Random(7).choices([chr(n) for n in range(0x4E00, 0x9000)], k=2_000))
"""A valid call id that no index entry of Postgres can hold."""


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


def raw(call_id: str, *, who: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """A record as somebody might write it, valid or not."""
    found = json.loads(encoded(record("c"))[0])
    found["attribution"] |= who or {}
    found |= {"call_id": call_id} | fields
    return json.dumps(found).encode()


BAD = {
    "run_id": raw("bad", who={"run_id": LONG}),
    "tenant": raw("bad", who={"tenant": LONG}),
    "attempt": raw("bad", who={"attempt": 2**40}),
    "nul": raw("bad", who={"step": "a\0b"}),
    "no attribution": raw("bad", attribution=None),
    "tokens": raw("bad", input_tokens=-1),
    "more tokens": raw("bad", output_tokens=2**63),
    "time": raw("bad", started_at_ms=1e300),
    "no time": raw("bad", started_at_ms=None),
    "model": raw("bad", model="m\n"),
    "unindexable": raw(UNINDEXABLE),
    "call id": raw(LONG),
    "status": raw("bad", status="splendid"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_what_a_refused_record_spent_is_booked_and_it_stops_nobody(
    bus: Bus, pool: asyncpg.Pool, bad: bytes
) -> None:
    good = encoded(*(record(f"c{number}") for number in range(8)))
    async with running_ledger(bus, pool, ack_wait_ms=PATIENT_MS):
        await publish(bus, [*good[:3], bad, *good[3:]])
        await drained(bus)
    found = await rows(pool)
    (amended,) = [row for row in found if row["amended"] is not None]
    assert {row["call_id"] for row in found} - {amended["call_id"]} == {
        f"c{number}" for number in range(8)
    }
    assert (amended["cost_usd"], len(amended["call_id"]) < 300) == (COST_USD, True)
    (letter,) = await dead_letters.list_(bus, 10)
    assert letter.payload == bad


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_what_a_refused_record_spent_is_booked_once_however_often_it_is_redriven(
    bus: Bus, pool: asyncpg.Pool, bad: bytes
) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, [bad])
        await drained(bus)
        for _ in range(2):
            for letter in await dead_letters.list_(bus, 10):
                await dead_letters.redrive(bus, letter.seq)
            await drained(bus)
    (amended,) = await rows(pool)
    assert amended["cost_usd"] == COST_USD
    assert {letter.payload for letter in await dead_letters.list_(bus, 10)} == {bad}


@pytest.mark.parametrize(
    "bad",
    [
        raw("bad", cost_usd="-1"),
        raw("bad", cost_usd="1e400"),
        raw("bad", cost_usd="NaN"),
        raw("bad", cost_usd="0", input_tokens=-1),
        b'{"call_id": "bad"',
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"kind": "opened"}',
        b'"kind":"warm"',
        b"",
    ],
    ids=str,
)
async def test_a_record_without_money_to_believe_is_a_dead_letter_only(
    bus: Bus, pool: asyncpg.Pool, bad: bytes
) -> None:
    async with running_ledger(bus, pool, ack_wait_ms=PATIENT_MS):
        await publish(bus, [bad, *encoded(record("c1"))])
        await drained(bus)
    assert [row["call_id"] for row in await rows(pool)] == ["c1"]
    assert len(await dead_letters.list_(bus, 10)) == 1


async def test_a_message_of_a_million_lines_is_one_dead_letter(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    async with running_ledger(bus, pool, ack_wait_ms=PATIENT_MS):
        await publish(bus, [b"\n" * 500_000, *encoded(record("c1"))])
        await drained(bus)
    assert len(await rows(pool)) == 1
    assert len(await dead_letters.list_(bus, 10)) == 1


# ---- one row for each request that was made -------------------------------------------------


async def test_two_calls_under_one_id_have_a_row_each_however_often_they_come(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    calls = [record("c", started_at_ms=STARTED_MS + number * 126_000) for number in range(3)]
    async with running_ledger(bus, pool):
        await publish(bus, encoded(calls[0]))
        await drained(bus)
        for _ in range(2):
            await publish(bus, encoded(*calls))
            await drained(bus)
    found = await rows(pool)
    assert sum(row["cost_usd"] for row in found) == 3 * COST_USD
    assert sorted(row["call_id"].split("#")[0] for row in found) == ["c", "c", "c"]


async def test_the_ids_of_two_tenants_do_not_meet(bus: Bus, pool: asyncpg.Pool) -> None:
    ours, theirs = (record("c", attribution=Attribution(tenant=t)) for t in ("ours", "theirs"))
    async with running_ledger(bus, pool):
        await publish(bus, [b"\n".join(encoded(ours, theirs)), *encoded(theirs, ours)])
        await drained(bus)
    assert {row["tenant"] for row in await rows(pool)} == {"ours", "theirs"}
    assert len(await rows(pool)) == 2


async def test_a_later_call_under_an_id_that_is_booked_is_known_to_be_open(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    later = opened("c", started_at_ms=STARTED_MS + 126_000, deadline_at_ms=STARTED_MS + 127_000)
    async with running_ledger(bus, pool):
        await publish(bus, encoded(record("c")))
        await drained(bus)
        await publish(bus, as_json(later), subjects.CALL_OPENED)
        await heard(bus)
        assert await pool.fetchval("SELECT count(*) FROM hocket.open_call") == 1
        await publish(bus, encoded(record("c", started_at_ms=STARTED_MS + 126_001)))
        await drained(bus)
    assert await pool.fetchval("SELECT count(*) FROM hocket.open_call") == 0


async def test_a_call_that_was_lost_stays_so_when_a_later_one_under_its_id_is_booked(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    begun_ms = datetime.now(UTC).timestamp() * 1_000 - 600_000
    lost = opened("c", started_at_ms=begun_ms, deadline_at_ms=begun_ms + 30_000)
    again = record("c", started_at_ms=begun_ms + 300_000)
    found = "SELECT call_id FROM report.lost_calls"
    async with running_ledger(bus, pool):
        await publish(bus, as_json(lost), subjects.CALL_OPENED)
        await heard(bus)
        await publish(bus, encoded(again))
        await drained(bus)
        await sweep(pool)
        assert await pool.fetch(found) == [("c",)]
        await pool.execute("DELETE FROM hocket.open_call")
        await publish(bus, as_json(lost), subjects.CALL_OPENED)  # it is delivered late
        await heard(bus)
        assert await pool.fetch(found) == [("c",)]
        await publish(bus, encoded(record("c", started_at_ms=begun_ms + 1)))
        await drained(bus)
        assert await pool.fetch(found) == []
    assert await pool.fetchval("SELECT count(*) FROM hocket.open_call") == 0


# ---- whose run it is ------------------------------------------------------------------------


async def test_a_call_that_names_another_tenants_run_costs_that_run_nothing(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ('r1', 0, 'ours', 'report', 1, 'running', 'standard', '{}', now(), now())"
    )
    mine = record("mine", attribution=Attribution(tenant="ours", run_id="r1"))
    forged = record("forged", cost_usd="99", attribution=Attribution(tenant="theirs", run_id="r1"))
    async with running_ledger(bus, pool):
        await publish(bus, encoded(mine, forged))
        await drained(bus)
    costs = await pool.fetch("SELECT tenant, cost_usd, calls FROM report.cost_by_run")
    assert {tuple(row) for row in costs} == {
        ("ours", COST_USD, 1),
        ("theirs", Decimal(99), 1),  # what it called is its own to pay
    }
