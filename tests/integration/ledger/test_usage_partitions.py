"""The ledger's rows are in partitions by time: made ahead, dropped behind, and a call is booked once
whatever its clock said."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import Record, booked
from hocket.ledger.store import insert
from hocket.ledger.upkeep import usage_partitions
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from hocket.schemas.messages import UsageRecord
from support.ledger_rig import drained, encoded, publish, record, running_ledger, until

KEPT_DAYS = 40
"""Longer than a month, whose calls stay in any case."""
PERIODS = Periods(runs=30, rejected=7, usage=KEPT_DAYS, durations=180, blobs=220)
CLOCKS = (
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2099, 12, 31, 23, 59, tzinfo=UTC),
    datetime(9986, 1, 1, tzinfo=UTC),
)
"""What gateways' clocks may say."""
PARTITIONS = "SELECT name, from_at, to_at FROM hocket.usage_partition ORDER BY from_at"
REPORT = "SELECT tenant, day, calls, cost_usd FROM report.cost_by_tenant ORDER BY day"
TRUTH = """
SELECT tenant, (started_at AT TIME ZONE 'UTC')::date AS day, count(*) AS calls, sum(cost_usd) AS cost_usd
FROM hocket.usage GROUP BY 1, 2 ORDER BY day
"""


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=4, name="test")
    yield pool
    await pool.close()


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def called(call_id: str, started_at: datetime) -> Record:
    return booked(UsageRecord.model_validate_json(_encoded(call_id, started_at)))


def _encoded(call_id: str, started_at: datetime) -> bytes:
    (one,) = encoded(record(call_id, started_at_ms=started_at.timestamp() * 1000))
    return one


async def filled(pool: asyncpg.Pool, days: int, *, calls: int = 3) -> None:
    """Make a partition for each of the last days, with calls that were booked as they ended."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for row in await pool.fetch(PARTITIONS):
        await pool.execute(f"DROP TABLE hocket.{row['name']}")
    for day in range(days, -2, -1):  # tomorrow's too: this may be the last second of today
        start = today - timedelta(days=day)
        make = "SELECT hocket.make_usage_partition($1, $2)"
        await pool.execute(make, start, start + timedelta(days=1))
    for day in range(days, 0, -1):
        start = today - timedelta(days=day)
        rows = [called(f"{day}-{n}", start + timedelta(hours=n + 1)) for n in range(calls)]
        await insert(pool, rows, KnownPrices())
    await pool.execute("UPDATE hocket.usage SET recorded_at = started_at + interval '1 s'")


async def test_partitions_are_there_before_their_day_and_overlap_with_none(
    pool: asyncpg.Pool,
) -> None:
    async with pool.acquire() as connection:
        for keep_days in (30, 400, 0, 30):
            await usage_partitions.make_ahead(connection, keep_days)
            found = await connection.fetch(PARTITIONS)
            ends = [row["to_at"] for row in found]
            assert [row["from_at"] for row in found][1:] == ends[:-1], "without a gap"
            assert ends[-1] > datetime.now(UTC) + timedelta(days=usage_partitions.AHEAD_DAYS)


@pytest.mark.parametrize(
    ("keep_days", "width"), [(1, 1), (62, 1), (63, 7), (400, 7), (801, 30), (0, 30)]
)
def test_a_table_has_a_bounded_number_of_partitions(keep_days: int, width: int) -> None:
    assert usage_partitions.width_days(keep_days) == width
    assert keep_days / width < 120


async def test_a_call_is_booked_once_whatever_the_clock_of_its_gateway_said(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    starts = [*CLOCKS, *(ago(-days) for days in (-900, -60, 20, 399, 401, 420))]
    lines = [_encoded(f"c{number}", at) for number, at in enumerate(starts)]
    async with running_ledger(bus, pool):
        for _ in range(2):
            for line in lines:
                await publish(bus, [line])
            await publish(bus, [b"\n".join(lines)])
            await drained(bus)
    found = await pool.fetch("SELECT call_id FROM hocket.usage ORDER BY 1")
    assert [row["call_id"] for row in found] == sorted(f"c{n}" for n in range(len(starts)))
    assert await pool.fetchval("SELECT count(*) FROM hocket.usage_partition") < 20


async def test_ledgers_that_book_the_same_calls_at_once_book_each_once(pool: asyncpg.Pool) -> None:
    starts = [*CLOCKS, *(ago(days) for days in range(-3, 40))]
    calls = [called(f"c{number}", at) for number, at in enumerate(starts)]
    new = await asyncio.gather(
        *(insert(pool, calls[place:] + calls[:place], KnownPrices()) for place in range(0, 40, 10)),
        return_exceptions=True,
    )
    # those who waited for each other are told so, and try again, as the ledger does
    again = [await insert(pool, calls, KnownPrices()) for one in new if isinstance(one, Exception)]
    assert sum(one for one in (*new, *again) if isinstance(one, int)) == len(calls)
    assert await pool.fetchval("SELECT count(*) FROM hocket.usage") == len(calls)


async def test_days_that_are_over_their_time_are_dropped_and_reports_follow_when_rolled_up(
    pool: asyncpg.Pool,
) -> None:
    await filled(pool, KEPT_DAYS + 3)
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    await pool.execute(
        "UPDATE hocket.rollup_state SET open_day = '-infinity', open_from = '-infinity'"
    )
    await rollups.make_pass(rest=0)
    before = await pool.fetch(REPORT)
    assert before == await pool.fetch(TRUTH)

    passed = await Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry())).make_pass()

    assert passed is not None
    assert passed["usage"] == 3 * 3
    first = await pool.fetchval("SELECT min(started_at) FROM hocket.usage")
    assert ago(KEPT_DAYS + 1) < first < ago(KEPT_DAYS - 1)
    assert await pool.fetch(REPORT) == before
    await rollups.make_pass(rest=0)
    assert await pool.fetch(REPORT) == await pool.fetch(TRUTH)
    assert await pool.fetchval("SELECT min(day) FROM hocket.rollup_cost_by_tenant") == first.date()


async def test_what_was_booked_later_than_its_day_is_kept_for_its_time(pool: asyncpg.Pool) -> None:
    await filled(pool, KEPT_DAYS + 3)
    await insert(
        pool, [called("late", ago(KEPT_DAYS + 2.5)), called("1970", CLOCKS[1])], KnownPrices()
    )

    await Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry())).make_pass()

    old = "SELECT call_id FROM hocket.usage WHERE started_at < $1 ORDER BY 1"
    found = [row["call_id"] for row in await pool.fetch(old, ago(KEPT_DAYS + 2))]
    assert found == ["1970", "late"]


async def test_what_a_killed_janitor_detached_goes_at_the_next_pass(pool: asyncpg.Pool) -> None:
    await filled(pool, KEPT_DAYS + 3)
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    await pool.execute(
        "UPDATE hocket.rollup_state SET open_day = '-infinity', open_from = '-infinity'"
    )
    await rollups.make_pass(rest=0)
    name, oldest_day, _ = await pool.fetchrow(f"{PARTITIONS} LIMIT 1")
    await pool.execute(f"ALTER TABLE hocket.usage DETACH PARTITION hocket.{name} CONCURRENTLY")

    # a late call of that day finds the place taken by what was left, and has it removed first
    await insert(pool, [called("late", oldest_day + timedelta(hours=9))], KnownPrices())

    assert await pool.fetch(REPORT) == await pool.fetch(TRUTH)
    assert await pool.fetchval("SELECT count(*) FROM hocket.usage WHERE call_id = 'late'") == 1


async def test_what_is_booked_while_its_day_is_about_to_go_stays(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(pool, KEPT_DAYS + 3)
    detach = usage_partitions._detach

    async def detach_late(connection: asyncpg.Connection, name: str, how: str) -> None:
        day = datetime.strptime(name.removeprefix("usage_"), "%Y%m%d").replace(tzinfo=UTC)
        late = [called(f"late-{day:%d}-{n}", day + timedelta(hours=9 + n)) for n in range(2)]
        assert await insert(pool, late, KnownPrices()) == 2
        await detach(connection, name, how)

    monkeypatch.setattr(usage_partitions, "_detach", detach_late)
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))

    passed = await Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry())).make_pass()

    assert passed is not None
    assert passed["usage"] == 3 * 3
    late = "SELECT count(*) FROM hocket.usage WHERE call_id LIKE 'late-%'"
    assert await pool.fetchval(late) == 3 * 2
    await rollups.make_pass(rest=0)
    assert await pool.fetch(REPORT) == await pool.fetch(TRUTH)


@pytest.mark.parametrize("finishes", ["a pass", "a booking"])
async def test_what_was_booked_before_a_killed_janitor_detached_stays(
    pool: asyncpg.Pool, finishes: str
) -> None:
    await filled(pool, KEPT_DAYS + 3)
    name, oldest_day, _ = await pool.fetchrow(f"{PARTITIONS} LIMIT 1")
    await insert(pool, [called("late", oldest_day + timedelta(hours=9))], KnownPrices())
    await pool.execute(f"ALTER TABLE hocket.usage DETACH PARTITION hocket.{name} CONCURRENTLY")

    if finishes == "a pass":
        await Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry())).make_pass()
    else:
        await insert(pool, [called("later", oldest_day + timedelta(hours=10))], KnownPrices())

    kept = await pool.fetch(
        "SELECT call_id FROM hocket.usage WHERE call_id LIKE 'late%' ORDER BY 1"
    )
    assert [row["call_id"] for row in kept] == ["late", "later"][: len(kept)]
    assert len(kept) == (1 if finishes == "a pass" else 2)
    assert await pool.fetchval("SELECT to_regclass('hocket.usage_dropped')") is None


async def test_dropping_a_day_lets_others_book_and_read_meanwhile(pool: asyncpg.Pool) -> None:
    await filled(pool, KEPT_DAYS + 3)
    janitor = Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry()))
    async with pool.acquire() as slow, slow.transaction():
        # a booking, and a reader of the day that goes, which are still at it
        await slow.execute(
            "UPDATE hocket.usage SET kind = 'call' WHERE started_at < $1", ago(KEPT_DAYS + 1)
        )
        dropping = asyncio.create_task(janitor.make_pass())
        waits = """
            SELECT count(*) FROM pg_stat_activity
            WHERE query LIKE '%DETACH PARTITION%CONCURRENTLY' AND wait_event_type = 'Lock'
        """

        async def is_waiting() -> bool:
            return bool(await pool.fetchval(waits))

        await until(is_waiting)
        assert await insert(pool, [called("meanwhile", ago(0))], KnownPrices()) == 1
        assert await pool.fetchval("SELECT sum(cost_usd) FROM hocket.usage") > Decimal(0)
    passed = await dropping
    assert passed is not None
    assert passed["usage"] == 3 * 3
