"""The ledger on real NATS and Postgres: once per call, exact money, and patience."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hocket.gateway.core.budgets.price import Prices, cost
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.record_pull import DURABLE
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process.lifecycle import Health
from hocket.ledger.store import sweep
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods
from hocket.schemas import subjects
from hocket.schemas.messages import (
    Attribution,
    CallDecision,
    CallRefused,
    CandidateSeen,
)
from support.ledger_rig import (
    BOUND_S,
    STARTED_MS,
    as_json,
    connected,
    drained,
    encoded,
    heard,
    opened,
    publish,
    record,
    rows,
    running_ledger,
    until,
)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


async def test_a_record_becomes_a_row_with_every_field(bus: Bus, pool: asyncpg.Pool) -> None:
    full = record(
        "c1",
        attribution=Attribution(
            tenant="acme", pipeline="p", version=3, run_id="r", node="n", step="n[1]", attempt=2
        ),
        replica="gpu-1",
        status="error",
        error_code="backend_broken",
        input_tokens=2**53,
        output_tokens=7,
        cached_tokens=5,
        cache_write_tokens=6,
        input_usd_per_mtok=Decimal("0.15"),
        output_usd_per_mtok=Decimal("0.000000000000000001"),
        cached_usd_per_mtok=Decimal("0.075"),
        cache_write_usd_per_mtok=Decimal("0.1875"),
        request_usd=Decimal("0.001"),
        cost_usd=Decimal("123456789.000000000000000000123456"),
        experiment="new-writer",
        arm="next",
        decision=CallDecision(
            model="writer",
            reason="least load",
            candidates=(CandidateSeen(backend="b/gpu-1", score=(0.0, 0.5), refused="is full"),),
        ),
    )
    async with running_ledger(bus, pool):
        await publish(bus, encoded(full))
        await drained(bus)
    (row,) = await rows(pool)
    kept = dict(row)
    assert kept.pop("recorded_at") is not None
    assert kept.pop("amended") is None
    decision = json.loads(kept.pop("decision"))
    expected = full.model_dump(exclude={"attribution", "started_at_ms", "decision"})
    expected |= full.attribution.model_dump()
    expected["started_at"] = datetime.fromtimestamp(STARTED_MS / 1000, UTC)
    assert kept == expected
    assert decision == {
        "model": "writer",
        "reason": "least load",
        "candidates": [{"backend": "b/gpu-1", "score": [0.0, 0.5], "refused": "is full"}],
    }
    assert str(kept["cost_usd"]) == "123456789.000000000000000000123456"


async def test_a_repeated_record_does_not_change_the_row(bus: Bus, pool: asyncpg.Pool) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, encoded(record("c1", cost_usd=Decimal(1))))
        await drained(bus)
        before = await rows(pool)
        await publish(bus, encoded(record("c1", cost_usd=Decimal(2)), record("c1")))
        await drained(bus)
    assert await rows(pool) == before


async def open_calls(pool: asyncpg.Pool) -> list[str]:
    return [
        row["call_id"]
        for row in await pool.fetch("SELECT call_id FROM hocket.open_call ORDER BY call_id")
    ]


async def test_a_call_is_open_from_its_beginning_until_it_is_booked(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, as_json(opened("c1"), opened("c2")), subjects.CALL_OPENED)
        await heard(bus)
        assert await open_calls(pool) == ["c1", "c2"]
        await publish(bus, as_json(record("c1"), record("c3")))
        await drained(bus)
        assert await open_calls(pool) == ["c2"]
        again = as_json(opened("c1"), opened("c3"), opened("c2"))
        await publish(bus, again, subjects.CALL_OPENED)
        await heard(bus)
    assert await open_calls(pool) == ["c2"]
    assert [row["call_id"] for row in await rows(pool)] == ["c1", "c3"]


def refused(call_id: str, error_code: str, at_ms: float) -> CallRefused:
    return CallRefused(
        call_id=call_id,
        attribution=Attribution(pipeline="report", run_id="r1", node="draft"),
        model="writer",
        error_code=error_code,
        reason="no luck",
        refused_at_ms=at_ms,
    )


async def test_a_refused_call_is_kept_with_its_last_reason_and_old_ones_go_with_a_pass(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    now_ms = datetime.now(UTC).timestamp() * 1000
    week_ago = refused("old", "gateway_full", now_ms - 8 * 86_400_000)
    first, last = (refused("c1", code, now_ms + n) for n, code in enumerate(("early", "late")))
    async with running_ledger(bus, pool):
        await publish(bus, as_json(week_ago, last, first))
        await drained(bus)
        await publish(bus, as_json(refused("c2", "model_unknown", now_ms), record("c3")))
        await drained(bus)
    kept = "SELECT call_id, error_code FROM hocket.refused_call ORDER BY call_id"
    late = [("c1", "late"), ("c2", "model_unknown")]
    old = ("old", "gateway_full")
    assert [tuple(row) for row in await pool.fetch(kept)] == [*late, old], "no booking waits for it"
    periods = Periods(runs=0, rejected=0, usage=0, durations=0, blobs=0)
    passed = await Janitor(pool, periods, JanitorMetrics(CollectorRegistry())).make_pass()
    assert passed is not None
    assert passed["refused_calls"] == 1
    assert [tuple(row) for row in await pool.fetch(kept)] == late
    assert [row["call_id"] for row in await rows(pool)] == ["c3"]


async def test_a_refused_call_is_not_told_the_reason_of_another_tenants(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    now_ms = datetime.now(UTC).timestamp() * 1000
    ours = refused("c", "gateway_full", now_ms)
    their_own = {"attribution": Attribution(tenant="theirs")}
    theirs = refused("c", "budget_exceeded", now_ms + 1).model_copy(update=their_own)
    async with running_ledger(bus, pool):
        for one in (ours, theirs):
            await publish(bus, as_json(one))
            await drained(bus)
    kept = await pool.fetch("SELECT tenant, error_code FROM hocket.refused_call")
    assert [tuple(row) for row in kept] == [("default", "gateway_full")]


async def test_calls_that_an_older_gateway_opens_in_usage_are_known(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, as_json(opened("c1"), opened("c3"), record("c3"), opened("c2")))
        await drained(bus)
    assert await open_calls(pool) == ["c1", "c2"]


async def test_an_opening_written_after_its_booking_is_swept_away(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, as_json(record("c1")))
        await drained(bus)
        for other in ("c1", "c2"):  # another ledger did not see the booking yet
            await pool.execute(
                "INSERT INTO hocket.open_call (call_id, tenant, model, backend, started_at,"
                " deadline_at) VALUES ($1, 'default', 'm', 'b', to_timestamp($2), to_timestamp($2))",
                other,
                STARTED_MS / 1_000,
            )
        await sweep(pool)
    assert await open_calls(pool) == ["c2"]


async def test_a_call_whose_gateway_was_killed_is_reported_as_lost(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    past_ms = datetime.now(UTC).timestamp() * 1000 - 120_000
    async with running_ledger(bus, pool):
        both = as_json(opened("late", deadline_at_ms=past_ms), opened("under-way"))
        await publish(bus, both, subjects.CALL_OPENED)
        await heard(bus)
    lost = await pool.fetch("SELECT call_id, node, gateway, expected_usd FROM report.lost_calls")
    assert [tuple(row) for row in lost] == [("late", "draft", "host:7", Decimal("0.002"))]


def hostile(**fields: Any) -> bytes:
    """A record as somebody else would write it: our own messages cannot hold these values."""
    told = json.loads(encoded(record("x"))[0])
    return json.dumps(told | fields).encode()


POISON = {
    "not_json": b"{",
    "a_field_missing": json.dumps({"call_id": "x"}).encode(),
    "tokens_below_zero": hostile(input_tokens=-1),
    "tokens_beyond_the_column": hostile(input_tokens=2**63),
    "a_nul_in_text": hostile(model="a\0b"),
    "a_time_beyond_time": hostile(started_at_ms=1e300),
    "an_opening_without_a_deadline": b'{"call_id":"x","kind":"opened"}',
    "cost_below_zero": hostile(cost_usd="-1"),
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
async def test_a_poison_record_goes_to_the_dead_letters_and_blocks_nobody(
    bus: Bus, pool: asyncpg.Pool, poison: bytes
) -> None:
    good = encoded(*(record(f"c{number}") for number in range(8)))
    await publish(bus, [*good[:3], poison, *good[3:]])
    async with running_ledger(bus, pool):
        await drained(bus)
    assert await as_they_came(pool) == [f"c{number}" for number in range(8)]
    letters = await dead_letters.list_(
        bus, 10
    )  # two, where it came again before it was acknowledged
    assert {letter.payload for letter in letters} == {poison}


async def test_records_that_share_a_message_become_rows_but_for_the_poison_among_them(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    lines = [*encoded(record("c1"), record("c2")), POISON["a_nul_in_text"], POISON["not_json"]]
    async with running_ledger(bus, pool):
        await publish(bus, [b"\n".join([*lines, *encoded(record("c3"))])])
        await drained(bus)
    assert await as_they_came(pool) == ["c1", "c2", "c3"]
    letters = await dead_letters.list_(bus, 10)
    assert {letter.payload for letter in letters} == set(lines[2:])


async def as_they_came(pool: asyncpg.Pool) -> list[str]:
    """Return the calls whose record was stored as it was; test_refused_records.py has the others."""
    return [row["call_id"] for row in await rows(pool) if row["amended"] is None]


KILLED_BEFORE_ACK = """
import asyncio, os, signal, sys
from prometheus_client import CollectorRegistry
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process.lifecycle import Health
from hocket.ledger.records.intake import Intake
from hocket.ledger.metrics import LedgerMetrics

async def main(nats_url, database_url):
    bus = await Bus.connect(nats_url, name="doomed")
    pool = await connect_pool(database_url, size=1, name="doomed")
    await Intake(
        bus, pool, Health(), LedgerMetrics(CollectorRegistry()), ack_wait_ms=1_000,
        acknowledge=lambda _: os.kill(os.getpid(), signal.SIGKILL),
    ).run(asyncio.Event())

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_ledger_killed_between_commit_and_ack_books_each_call_once(
    bus: Bus, pool: asyncpg.Pool, nats_url: str, database_url: str
) -> None:
    await publish(bus, encoded(*(record(f"c{number:03}") for number in range(200))))
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_BEFORE_ACK, nats_url, database_url
    )
    assert await asyncio.wait_for(doomed.wait(), BOUND_S) == -signal.SIGKILL
    before = await rows(pool)
    assert before
    async with running_ledger(bus, pool):
        await drained(bus)
    after = await rows(pool)
    assert [row["call_id"] for row in after] == [f"c{number:03}" for number in range(200)]
    assert [row for row in after if row["call_id"] in {b["call_id"] for b in before}] == before


async def test_records_wait_while_postgres_is_away(
    bus: Bus, pool: asyncpg.Pool, servers: EmbeddedServers
) -> None:
    health = Health()
    async with running_ledger(bus, pool, health):
        await publish(bus, encoded(record("c1")))
        await drained(bus)
        await servers.postgres.stop()
        try:
            await publish(bus, encoded(record("c2"), record("c3")))

            async def noticed() -> bool:
                return not health.ready

            await until(noticed)
        finally:
            await servers.postgres.start()
        await drained(bus)
        assert health.ready
    assert [row["call_id"] for row in await rows(pool)] == ["c1", "c2", "c3"]


async def test_booking_goes_on_after_nats_was_killed(
    bus: Bus, pool: asyncpg.Pool, servers: EmbeddedServers
) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, encoded(record("c1")))
        await drained(bus)
        await servers.nats.kill()
        await servers.nats.wait_ready()
        await until(connected(bus))
        await publish(bus, encoded(record("c2")))
        await drained(bus)
    assert [row["call_id"] for row in await rows(pool)] == ["c1", "c2"]


async def test_booking_goes_on_after_the_consumer_was_deleted(bus: Bus, pool: asyncpg.Pool) -> None:
    async with running_ledger(bus, pool):
        await publish(bus, encoded(record("c1")))
        await drained(bus)
        await bus.js.delete_consumer(subjects.USAGE, DURABLE)
        await publish(bus, encoded(record("c2")))
        await drained(bus)
    assert [row["call_id"] for row in await rows(pool)] == ["c1", "c2"]


async def test_a_stopping_ledger_takes_what_still_waits(bus: Bus, pool: asyncpg.Pool) -> None:
    await publish(bus, encoded(*(record(f"c{number}") for number in range(700))))
    async with running_ledger(bus, pool):
        pass
    assert len(await rows(pool)) == 700


money = st.decimals(min_value=0, max_value=10**6, places=18)
tokens = st.integers(min_value=0, max_value=10**11)  # three of them cost less than MAX_USD
call = st.tuples(st.builds(Prices, money, money, st.none() | money, money), tokens, tokens, tokens)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(call, min_size=1, max_size=40))
async def test_the_cost_report_equals_the_usage_records_to_the_last_digit(
    bus: Bus, pool: asyncpg.Pool, calls: list[tuple[Prices, int, int, int]]
) -> None:
    await pool.execute("TRUNCATE hocket.usage")
    published = [
        record(
            f"c{number}",
            input_tokens=uncached + cached,
            cached_tokens=cached,
            output_tokens=output,
            cost_usd=cost(
                prices,
                input_tokens=uncached + cached,
                output_tokens=output,
                cached_tokens=cached,
            ).usd,
        )
        for number, (prices, uncached, cached, output) in enumerate(calls)
    ]
    async with running_ledger(bus, pool):
        await publish(bus, encoded(*published))
        await drained(bus)
    (day,) = await pool.fetch("SELECT * FROM report.cost_by_pipeline_day")
    assert Fraction(day["cost_usd"]) == sum(Fraction(one.cost_usd) for one in published)
    assert (day["calls"], day["input_tokens"]) == (
        len(published),
        sum(one.input_tokens for one in published),
    )


async def test_the_process_starts_books_and_stops_on_sigterm(
    bus: Bus, pool: asyncpg.Pool, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hocket.ledger",
        env={
            **os.environ,
            "NATS_URL": nats_url,
            "DATABASE_URL": database_url,
            "HOCKET_DATA_DIR": str(tmp_path),
        },
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await publish(bus, encoded(record("c1")))
        await drained(bus)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), BOUND_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [row["call_id"] for row in await rows(pool)] == ["c1"]
