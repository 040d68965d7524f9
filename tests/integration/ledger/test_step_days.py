"""Steps and attempts are in tables of the day on which their run was accepted; those go as a whole."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest
import structlog
from prometheus_client import CollectorRegistry

from hocket.coordinator.core.run.state.columns import STEP_COLUMNS
from hocket.coordinator.storage.store import Batch, Store
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.upkeep import retention, step_days
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from support.ledger_rig import until

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
KEEP_DAYS = 30
OLD_DAYS = 40


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=4, name="step-days")
    await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
    yield pool
    await pool.close()


@pytest.fixture
def janitor(pool: asyncpg.Pool) -> Janitor:
    periods = Periods(runs=KEEP_DAYS, rejected=7, usage=400, durations=180, blobs=220)
    return Janitor(pool, periods, JanitorMetrics(CollectorRegistry()))


async def make_day(pool: asyncpg.Pool, days_ago: int) -> str:
    """Make the tables of a day in the past, as they were made when it was today."""
    begins = (NOON - timedelta(days=days_ago)).replace(hour=0)
    await pool.execute(
        "UPDATE hocket.step_days SET to_at = least(to_at, $1) WHERE suffix = ''", begins
    )
    suffix: str = await pool.fetchval(
        "SELECT hocket.make_step_days($1, $2)", begins, begins + timedelta(days=1)
    )
    return suffix


async def add_run(
    pool: asyncpg.Pool,
    run_id: str,
    days_ago: float,
    *,
    tenant: str = "acme",
    ended: bool = True,
    parent: str | None = None,
) -> None:
    """Add a run with two steps, one of them with a failed attempt, by the statements of old releases."""
    at = NOON - timedelta(days=days_ago)
    await pool.execute(
        """
        INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
            accepted_at, deadline_at, finished_at, parent)
        VALUES ($1, 0, $2, 'p', 1, $3, 'standard', '{}', $4, $4, $5,
            CASE WHEN $6::text IS NOT NULL THEN jsonb_build_object('run_id', $6::text, 'step', 's0') END)
        """,
        run_id,
        tenant,
        "succeeded" if ended else "running",
        at,
        at + timedelta(seconds=2) if ended else None,
        parent,
    )
    for key in ("s0", "s1"):
        await pool.execute(
            """
            INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
                dispatched_at, started_at, finished_at, took_ms)
            VALUES ($1, $2, $2, 'sql', 'leaf', 'succeeded', 2, $3, $3, $3, $3, 5)
            ON CONFLICT (run_id, key) DO NOTHING
            """,
            run_id,
            key,
            at,
        )
    await pool.execute(
        """INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)
        VALUES ($1, 's0', 1, 'failed', $2) ON CONFLICT DO NOTHING""",
        run_id,
        at,
    )


async def tables(pool: asyncpg.Pool | asyncpg.Connection, kind: str = "step") -> dict[str, str]:
    """Return in which table the rows of each run are."""
    rows = await pool.fetch(f"SELECT DISTINCT run_id, tableoid::regclass::text FROM hocket.{kind}")
    return dict(rows)


async def test_rows_are_in_the_tables_of_the_day_of_their_run_whoever_writes_them(
    pool: asyncpg.Pool,
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    await add_run(pool, "old", OLD_DAYS)
    await add_run(pool, "older", OLD_DAYS + 1)
    await add_run(pool, "new", 0)

    today = NOON.strftime("%Y%m%d")
    assert await tables(pool) == {
        "old": f"step_{suffix}",
        "older": "step",
        "new": f"step_{today}",
    }
    assert await tables(pool, "attempt") == {
        "old": f"attempt_{suffix}",
        "older": "attempt",
        "new": f"attempt_{today}",
    }
    found = "SELECT count(*) FROM hocket.step WHERE tenant = 'acme'"
    assert await pool.fetchval(found) == 6


async def test_a_day_goes_with_its_tables_when_all_of_it_is_over_its_time(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    for number in range(300):
        await add_run(pool, f"old{number}", OLD_DAYS)
    await add_run(pool, "young", KEEP_DAYS - 1)

    passed = await janitor.make_pass()

    assert passed is not None
    assert passed["runs"] == 300
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.attempt_{suffix}") is None
    assert await pool.fetch("SELECT DISTINCT run_id FROM hocket.step") == [("young",)]
    assert await pool.fetchval("SELECT count(*) FROM hocket.run") == 1
    again = await janitor.make_pass()
    assert again is not None
    assert again["runs"] == 0


async def test_what_steps_charged_stays_when_their_tables_go(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    for run_id, days in (("old", OLD_DAYS), ("needed", OLD_DAYS), ("young", KEEP_DAYS - 1)):
        await add_run(pool, run_id, days, ended=run_id != "needed")
    await pool.execute(
        """UPDATE hocket.step SET facts = '{"charged_usd": "0.02"}' WHERE key = 's1'"""
    )
    charged = (
        "SELECT day, sum(cost_usd) AS usd, sum(calls) AS calls FROM report.cost_by_kind"
        " GROUP BY 1 ORDER BY 1"
    )
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    before = await pool.fetch(charged)
    assert [row["usd"] for row in before] == [Decimal("0.04"), Decimal("0.02")]
    await rollups.make_pass(rest=0)

    await janitor.make_pass()

    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None
    kept = await pool.fetch("SELECT run_id, key, cost_usd FROM hocket.kept_charge")
    assert kept == [("old", "s1", Decimal("0.02"))]
    assert await pool.fetch(charged) == before
    assert await rollups.make_pass(rest=0)
    assert await pool.fetch(charged) == before


async def test_what_a_run_that_goes_on_has_moves_to_the_parents_when_its_day_goes(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    await add_run(pool, "waits", OLD_DAYS, ended=False)
    await add_run(pool, "below-one-that-waits", OLD_DAYS, parent="waits")
    await add_run(pool, "above-a-later-one", OLD_DAYS)
    await add_run(pool, "later", KEEP_DAYS - 2, parent="above-a-later-one")
    await add_run(pool, "over", OLD_DAYS)

    await janitor.make_pass()

    kept = {"waits", "below-one-that-waits", "above-a-later-one"}
    assert await tables(pool) == dict.fromkeys(kept | {"later"}, "step")
    assert await tables(pool, "attempt") == dict.fromkeys(kept | {"later"}, "attempt")
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None
    await pool.execute(  # and its next row is found there
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)"
        " VALUES ('waits', 's2', 's2', 'sql', 'leaf', 'dispatched', 1, now())"
    )
    assert (await tables(pool))["waits"] == "step"


async def test_a_run_that_is_repeated_since_the_pass_began_stays_with_its_steps(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "REPEATED", "SELECT '' WHERE false")  # before it began
    suffix = await make_day(pool, OLD_DAYS)
    await add_run(pool, "above-origin", OLD_DAYS)
    await add_run(pool, "origin", OLD_DAYS, parent="above-origin")
    await add_run(pool, "over", OLD_DAYS)
    await add_run(pool, "again", 0, ended=False)
    await pool.execute(
        """UPDATE hocket.run SET facts = '{"origin": {"run_id": "origin"}}' WHERE run_id = 'again'"""
    )

    await janitor.make_pass()

    kept = {"above-origin": "step", "origin": "step", "again": f"step_{NOON:%Y%m%d}"}
    assert await tables(pool) == kept
    runs = await pool.fetch("SELECT run_id FROM hocket.run")
    assert {row["run_id"] for row in runs} == set(kept)
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None


async def test_a_coordinator_that_knew_a_table_that_is_dropped_writes_to_the_parents(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await make_day(pool, OLD_DAYS)
    await add_run(pool, "waits", OLD_DAYS, ended=False)
    store = Store(pool)
    offset = await store.acquire(0, "a")
    accepted_ms = (NOON - timedelta(days=OLD_DAYS)).timestamp() * 1000

    def batch(number: int) -> Batch:
        given = {"run_id": "waits", "key": f"t{number}", "path": "t", "type": "sql", "role": "leaf"}
        row = {**given, "state": "dispatched", "attempt": 1, "ready_at": accepted_ms}
        return Batch(
            offsets={0: (offset.epoch, number, f"m{number}")},
            numbers={0: number},
            steps=[tuple(row.get(column) for column in STEP_COLUMNS)],
            placements={"waits": ("acme", accepted_ms)},
        )

    await store.commit(batch(1))
    (before,) = await store.in_flight(0)
    await janitor.make_pass()
    (after,) = await store.in_flight(0)
    await store.commit(batch(2))
    (last,) = await Store(pool).in_flight(0)

    assert {step["key"] for step in before.steps} == {"s0", "s1", "t1"}
    assert {step["key"] for step in after.steps} == {"s0", "s1", "t1"}
    assert {step["key"] for step in last.steps} == {"s0", "s1", "t1", "t2"}
    assert await tables(pool) == {"waits": "step"}


async def test_a_reader_is_waited_for_and_holds_up_nobody(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_days, "LOCK_PAUSE_S", 0.01)
    suffix = await make_day(pool, OLD_DAYS)
    await add_run(pool, "old", OLD_DAYS)
    async with pool.acquire() as reader:
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT FROM hocket.step")
        dropping = asyncio.create_task(janitor.make_pass())

        async def runs_are_gone() -> bool:
            return bool(await pool.fetchval("SELECT count(*) = 0 FROM hocket.run"))

        await until(runs_are_gone)
        for _ in range(20):  # others read and write, whatever the janitor waits for
            await asyncio.wait_for(pool.fetch("SELECT FROM hocket.step"), 2)
        assert not dropping.done()
        await transaction.rollback()
    await dropping
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None


async def test_runs_of_a_day_that_take_too_long_together_go_one_by_one(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    for run_id in ("old", "older"):
        await add_run(pool, run_id, OLD_DAYS)
    given = "($1::timestamptz, $2::timestamptz, $3::timestamptz, $4::text[])"
    for_ever = f"SELECT count(*) FROM pg_sleep(600) WHERE {given} IS NOT NULL"
    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logged:
        patched.setattr(step_days, "_RUNS", for_ever)
        patched.setattr(step_days, "LONG_TIMEOUT_S", 0.5)
        passed = await janitor.make_pass()

    assert passed is not None
    assert passed["runs"] == 2
    assert await pool.fetchval("SELECT count(*) FROM hocket.run") == 0
    assert await pool.fetchval("SELECT count(*) FROM hocket.step") == 0
    (line,) = [line for line in logged if line["event"] == "retention_goes_run_by_run"]
    assert line["table"] == f"step_{suffix}"
    assert line["after_s"] >= 0.5
    await janitor.make_pass()
    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None


async def test_what_was_broken_off_between_runs_and_tables_is_finished(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    suffix = await make_day(pool, OLD_DAYS)
    await add_run(pool, "old", OLD_DAYS)
    await pool.execute("DELETE FROM hocket.run")

    await janitor.make_pass()

    assert await pool.fetchval("SELECT to_regclass($1)", f"hocket.step_{suffix}") is None


async def test_an_old_release_deletes_no_rows_by_a_place_that_is_not_unique(
    pool: asyncpg.Pool,
) -> None:
    await add_run(pool, "mine", 0)
    with pytest.raises(asyncpg.RaiseError, match="deleted by hocket"):
        await pool.execute("DELETE FROM hocket.step WHERE ctid = '(0,1)'")
    assert await pool.fetchval("SELECT count(*) FROM hocket.step") == 2


@pytest.mark.parametrize("said", [None, "off", "on"])
async def test_steps_that_go_with_their_run_leave_the_guard_as_it_was(
    pool: asyncpg.Pool, said: str | None
) -> None:
    await add_run(pool, "gone", 0)
    await add_run(pool, "kept", 0)
    by_hand = "DELETE FROM hocket.step WHERE run_id = 'kept'"
    async with pool.acquire() as connection, connection.transaction():
        if said is not None:
            await connection.execute(f"SET LOCAL hocket.deletes = '{said}'")
        await connection.execute("DELETE FROM hocket.run WHERE run_id = 'gone'")
        assert await tables(connection) == {"kept": f"step_{NOON:%Y%m%d}"}
        if said == "on":
            await connection.execute(by_hand)
        else:
            with pytest.raises(asyncpg.RaiseError, match="deleted by hocket"):
                async with connection.transaction():
                    await connection.execute(by_hand)


async def test_reports_show_a_day_as_it_was_until_it_is_rolled_up_without_what_was_dropped(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await make_day(pool, OLD_DAYS)
    await add_run(pool, "old", OLD_DAYS)
    await pool.execute(
        "UPDATE hocket.rollup_state SET open_day = '-infinity', open_from = '-infinity'"
    )
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    await rollups.make_pass(rest=0)
    asked = "SELECT node, steps FROM report.latency_by_node ORDER BY node"
    before = [tuple(row) for row in await pool.fetch(asked)]
    assert before == [("s0", 1), ("s1", 1)]

    await janitor.make_pass()

    assert await pool.fetchval("SELECT count(*) FROM hocket.dirty_day") == 0
    assert [tuple(row) for row in await pool.fetch(asked)] == before
    assert await rollups.make_pass(rest=0) == 1
    assert await pool.fetch(asked) == []
    assert await pool.fetchval("SELECT count(*) FROM hocket.stale_day") == 0


async def test_what_a_call_cost_that_named_a_run_after_its_end_stays_when_its_run_goes(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await make_day(pool, OLD_DAYS)
    await add_run(pool, "old", OLD_DAYS)
    for call_id, days in (("of-a-step", OLD_DAYS), ("http:late", OLD_DAYS - 3)):
        await pool.execute(
            "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
            " started_at, latency_ms) VALUES ($1, 'acme', 'old', 'm', 'b', 'ok', 0.5, $2, 1)",
            call_id,
            NOON - timedelta(days=days),
        )
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    asked = "SELECT status, cost_usd FROM report.cost_by_run"
    await rollups.make_pass(rest=0)
    assert await pool.fetch(asked) == [("succeeded", Decimal(1))]

    await janitor.make_pass()

    assert await pool.fetch(asked) == [("succeeded", Decimal(1))]
    await rollups.make_pass(rest=0)
    assert await pool.fetch(asked) == [("external", Decimal(1))]  # our ids look otherwise
