"""Reports read rollups of days that are over, and say to the last digit what their rows come to,
whatever was changed late: the judge is what the views computed from all rows before there were rollups
(the migration's way back)."""

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.postgres import report_logins
from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.migrations import folder
from hocket.kit.postgres.rollup_tables import REPORTS
from hocket.ledger import kinds
from hocket.ledger.daily_spending import is_told_by_days, spent_since_day
from hocket.ledger.spent import SINCE
from hocket.ledger.upkeep import rollups
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups

DAYS = 5
SEEDS = (1, 17, 38)
ROUNDS = 12
CHANGES = 20
TENANTS = ("acme", "rival")
VIEW = re.compile(r"CREATE OR REPLACE VIEW report\.(\w+) .*?AS\n(.*?);\n\n", re.S)
ROUND_DIGITS = 9
WHOLE_DAYS = (
    (
        "(now() - '7 days'::interval)",
        "(((now() AT TIME ZONE 'UTC')::date - 7)::timestamp AT TIME ZONE 'UTC')",
    ),
    ("/ (7)::numeric)", "/ (7 + extract(epoch FROM (now() AT TIME ZONE 'UTC')::time) / 86400))"),
)
"""The week of forecasts and model swaps was seven days to the second."""
LATE_CALL = """
INSERT INTO hocket.usage (call_id, tenant, pipeline, model, backend, status, cost_usd, started_at,
                          latency_ms)
VALUES ($1, 'acme', 'p', 'm', 'b', 'ok', 1, now() - interval '2 days', 1)
"""


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=3, name="test")
    way_back = (folder() / "sql" / "0035_rollups.down.sql").read_text()
    for then, since_0061 in WHOLE_DAYS:
        assert then in way_back
        way_back = way_back.replace(then, since_0061)
    await pool.execute("CREATE SCHEMA direct")
    views = VIEW.findall(way_back)
    assert len(views) == 22
    for name, text in views:
        text = re.sub(rf"\breport\.({'|'.join(one for one, _ in views)})\b", r"direct.\1", text)
        await pool.execute(f"CREATE VIEW direct.{name} AS {text}")
    await pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date - 30,"
        " open_from = (current_date - 30)::timestamp AT TIME ZONE 'UTC'"
    )
    yield pool
    await pool.execute("DROP SCHEMA direct CASCADE")
    await pool.close()


def rolling(pool: asyncpg.Pool) -> Rollups:
    return Rollups(pool, RollupMetrics(CollectorRegistry()))


async def assert_exact(pool: asyncpg.Pool) -> int:
    """Compare each report with the computation from all rows, in one snapshot; return the rows."""
    compared = 0
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        names = await connection.fetch(
            "SELECT viewname FROM pg_views WHERE schemaname = 'direct' ORDER BY 1"
        )
        for (name,) in names:
            said, true = [
                sorted(
                    (told(row) for row in await connection.fetch(f"SELECT * FROM {schema}.{name}")),
                    key=repr,
                )
                for schema in ("report", "direct")
            ]
            assert said == true, name
            compared += len(true)
        await assert_ledger_exact(connection)
    return compared


async def assert_ledger_exact(connection: asyncpg.Connection) -> None:
    """Compare what the ledger tells gateways of each day with the sum of all calls since then."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    pipelines = (None, "p", "other")
    for days, tenant, pipeline in itertools.product((-1, 0, 1, 3, 40), TENANTS, pipelines):
        since = today - timedelta(days=days)
        assert is_told_by_days(since, None)
        asked = (tenant, pipeline, since)
        told_usd = await spent_since_day(connection, *asked)
        assert told_usd == await connection.fetchval(SINCE, *asked, None)


def told(row: asyncpg.Record) -> tuple[object, ...]:
    """Return a row to compare: means of durations are floats, all else must be the same."""
    return tuple(
        float(f"{value:.{ROUND_DIGITS}g}")
        if isinstance(value, float)
        else (value.normalize() if isinstance(value, Decimal) else value)
        for value in row.values()
    )


class Play:
    """Random changes, late ones most of all, as the services make them."""

    def __init__(self, pool: asyncpg.Pool, seed: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.runs: dict[str, tuple[str, datetime]] = {}
        self.calls: list[str] = []
        self.number = 0
        self.now = datetime.now(UTC)

    def moment(self) -> datetime:
        days = self.random.choice((0, self.random.random(), self.random.random() * DAYS))
        return self.now - timedelta(days=days, seconds=self.random.random() * 60)

    async def change(self) -> None:
        changes = (
            [self.book] * 6
            + [self.accept] * 3
            + [self.end] * 2
            + [self.step] * 2
            + [self.fail, self.race, self.correct, self.delete_call, self.delete_run, self.warm]
        )
        await self.random.choice(changes)()

    async def accept(self) -> None:
        self.number += 1
        run_id = f"r{self.number:024x}"
        parent = self.random.choice([None, None, *self.runs])
        tenant, at = self.random.choice(TENANTS), self.moment()
        if parent:
            tenant = self.runs[parent][0]
        self.runs[run_id] = tenant, at
        await self.pool.execute(
            """INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
               input, accepted_at, deadline_at, budget_usd, spent_usd, parent)
               VALUES ($1, 0, $2, $3, 1, 'running', 'standard', '{}', $4,
               $4::timestamptz + interval '1 h', $5, $6, CASE WHEN $7::text IS NOT NULL
                   THEN jsonb_build_object('run_id', $7::text, 'step', 'a~b') END)
               ON CONFLICT DO NOTHING""",
            run_id,
            tenant,
            self.random.choice("pq"),
            at,
            self.random.choice([None, self.money()]),
            self.money(),
            parent,
        )

    async def end(self) -> None:
        if self.runs:
            run_id = self.random.choice(list(self.runs))
            await self.pool.execute(
                """UPDATE hocket.run SET status = $2, spent_usd = $3,
                   finished_at = greatest(accepted_at, $4),
                   critical_path = '[["a", "a", 1, "queue", 200, 1], ["a", "a", 1, "work", 801, 1]]'
                   WHERE run_id = $1""",
                run_id,
                self.random.choice(("succeeded", "degraded", "failed", "cancelled")),
                self.money(),
                self.moment(),
            )

    async def step(self) -> None:
        if self.runs:
            run_id = self.random.choice(list(self.runs))
            other = self.random.choice(list(self.runs))
            source = self.random.choice(
                (
                    None,
                    '{"source": {"kind": "cache", "saved_usd": "0.07"}}',
                    f'{{"source": {{"kind": "run", "run_id": "{other}", "step": "a~b"}}}}',
                )
            )
            await self.pool.execute(
                """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
                   dispatched_at, started_at, finished_at, took_ms, facts)
                   VALUES ($1, $2, 'a', $3, 'leaf', 'succeeded', 1, $4, $4, $4,
                   $4::timestamptz + interval '3 s', $5, $6)
                   ON CONFLICT (run_id, key) DO UPDATE SET finished_at = excluded.finished_at""",
                run_id,
                self.random.choice("ab"),
                self.random.choice(("llm", "sql")),
                self.moment(),
                float(self.random.randrange(1, 999)),
                source,
            )

    async def book(self) -> None:
        self.number += 1
        run_id = self.random.choice([None, "of-elsewhere", *self.runs])
        tenant, at = self.runs.get(run_id or "", (self.random.choice(TENANTS), self.moment()))
        at = max(at, self.moment())  # no gateway's clock is behind by an hour
        if run_id == "of-elsewhere":  # on one day, because it counts on each day of its calls
            at, tenant = self.now, "acme"
        call_id = f"{self.random.choice(('', 'http:'))}c{self.number}"
        self.calls.append(call_id)
        tokens = self.random.choice((0, self.random.randrange(1, 5_000)))
        await self.pool.execute(
            """INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, attempt,
               model, backend, status, input_tokens, output_tokens, cached_tokens, input_usd_per_mtok,
               cached_usd_per_mtok, cost_usd, started_at, latency_ms, labels, experiment, arm,
               unpriced, estimated)
               SELECT $1, $2, $3, 1, $4, 'a', 'a~' || $5, 1, $5, 'back', $6, $7::integer,
               $7::integer / 2, $7::integer / 3, 1, 0.1, $8, $9, $10, $11, $12, $12, $13, $13""",
            call_id,
            tenant,
            self.random.choice("pq"),
            run_id,
            self.random.choice("bcd"),
            self.random.choice(("ok", "ok", "error")),
            tokens,
            self.money(),
            at,
            float(self.random.randrange(1, 999)),
            self.random.choice((None, '{"customer": "x", "team": "y"}')),
            self.random.choice((None, "trial")),
            self.random.random() < 0.2,
        )

    async def fail(self) -> None:
        if self.runs:
            await self.pool.execute(
                """INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)
                   VALUES ($1, 'a~b', 1, 'failed', now()) ON CONFLICT DO NOTHING""",
                self.random.choice(list(self.runs)),
            )

    async def race(self) -> None:
        if self.runs:
            await self.pool.execute(
                """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
                   facts)
                   VALUES ($1, 'a', 'a', 'race', 'container', 'open', 1, now(), '{"winner": "a~c"}')
                   ON CONFLICT (run_id, key) DO UPDATE SET facts = excluded.facts""",
                self.random.choice(list(self.runs)),
            )

    async def correct(self) -> None:
        if self.calls:
            await self.pool.execute(
                """UPDATE hocket.usage SET cost_usd = $2, estimated = false,
                   started_at = CASE run_id WHEN 'of-elsewhere' THEN started_at
                   ELSE greatest(started_at, $3) END WHERE call_id = $1""",
                self.random.choice(self.calls),
                self.money(),
                self.moment(),
            )

    async def delete_call(self) -> None:
        if self.calls:
            await self.pool.execute(
                "DELETE FROM hocket.usage WHERE call_id = $1", self.random.choice(self.calls)
            )

    async def delete_run(self) -> None:
        leaves = await self.pool.fetch(
            """DELETE FROM hocket.run r WHERE run_id = (
                   SELECT run_id FROM hocket.run r WHERE NOT EXISTS (
                       SELECT FROM hocket.run c WHERE c.parent ->> 'run_id' = r.run_id)
                   AND NOT EXISTS (SELECT FROM hocket.usage u WHERE u.run_id = r.run_id)
                   ORDER BY md5(run_id || $1) LIMIT 1) RETURNING run_id""",
            str(self.number),
        )
        for (run_id,) in leaves:
            del self.runs[run_id]

    async def warm(self) -> None:
        self.number += 1
        await self.pool.execute(
            """INSERT INTO hocket.warm_time (record_id, backend, model, from_at, to_at, busy_ms, idle_ms,
               cost_usd, wasted_usd) VALUES ($1, 'back', 'm', $2, $2, 4000, 5000, 1, 0.6)""",
            f"w{self.number}",
            self.moment(),
        )

    def money(self) -> Decimal:
        return Decimal(self.random.randrange(1, 10**9)) / 10**11


@pytest.mark.parametrize("seed", SEEDS)
async def test_reports_are_exact_under_random_late_changes(pool: asyncpg.Pool, seed: int) -> None:
    play, rolled, compared = Play(pool, seed), 0, 0
    for number in range(ROUNDS):
        for _ in range(CHANGES):
            await play.change()
        if play.random.random() < 0.6:
            rolled += await rolling(pool).make_pass(rest=0)
        if play.random.random() < 0.3:
            await kinds.settle(pool, settled_s=0.0)
        if number % 3 == 2:
            compared += await assert_exact(pool)
    await rolling(pool).make_pass(rest=0)
    assert await assert_exact(pool)
    assert compared > 100
    assert rolled > DAYS
    assert not await pool.fetchval("SELECT count(*) FROM hocket.live_day")
    kept = 0
    for name in REPORTS:
        kept += await pool.fetchval(f"SELECT count(*) FROM hocket.rollup_{name}")
    # of how many days depends on the time of the day
    assert kept > 20, "the rollups are empty: this compared rows with themselves"


async def test_a_change_that_is_committed_while_its_day_is_rolled_up_keeps_its_note(
    pool: asyncpg.Pool,
) -> None:
    play = Play(pool, 1)
    for _ in range(40):
        await play.change()
    await rolling(pool).make_pass(rest=0)
    dirty = "SELECT count(*) FROM hocket.dirty_day"
    await pool.execute(LATE_CALL, "before")
    async with pool.acquire() as writer:
        late = writer.transaction()
        await late.start()
        await writer.execute(LATE_CALL, "during")
        assert await rolling(pool).make_pass(rest=0) == 1
        assert await pool.fetchval(dirty) == 0
        await assert_exact(pool)
        await late.commit()
    assert await pool.fetchval(dirty) == 1
    await assert_exact(pool)
    assert await rolling(pool).make_pass(rest=0) == 1
    await assert_exact(pool)


async def test_a_day_is_not_closed_while_a_transaction_of_it_may_still_be_open(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MAX_SETTLES", 1)
    monkeypatch.setattr(rollups, "SETTLE_S", 0.0)
    async with pool.acquire() as writer:
        slow = writer.transaction()
        await slow.start()
        await writer.execute("INSERT INTO hocket.dirty_day VALUES ('nobody', current_date)")
        assert await rolling(pool).make_pass(rest=0) == 0
        await slow.rollback()
    assert await rolling(pool).make_pass(rest=0) == 1
    opened: Any = await pool.fetchval(
        "SELECT open_day = hocket.day_of(now() - $1 * interval '1 second') FROM hocket.rollup_state",
        rollups.CLOSE_S,
    )
    assert opened


async def test_a_day_that_is_closed_and_not_over_by_the_clock_is_opened_again(
    pool: asyncpg.Pool,
) -> None:
    today_call = LATE_CALL.replace(" - interval '2 days'", "")
    await pool.execute(today_call, "before")
    await rolling(pool).make_pass(rest=0)
    # the clock is two days ahead, and goes back
    day = datetime.now(UTC).date()
    async with pool.acquire() as connection:
        await rollups._close(connection, day - timedelta(days=1), day + timedelta(days=2))
    await pool.execute(today_call, "after")
    assert await pool.fetchval("SELECT sum(cost_usd) FROM report.cost_by_tenant") == 1
    async with pool.acquire() as connection:
        # reports are wrong for a minute; no money is forgotten
        await assert_ledger_exact(connection)
    await rolling(pool).make_pass(rest=0)
    assert await pool.fetchval("SELECT sum(cost_usd) FROM report.cost_by_tenant") == 2
    await assert_exact(pool)


def test_what_a_label_spent_is_added_up_from_its_calls() -> None:
    """They have an index for it, and the rollup of labels has none."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    assert is_told_by_days(today, None)
    assert not is_told_by_days(today, {"customer": "x"})
    assert not is_told_by_days(today + timedelta(hours=1), None)


async def test_a_day_that_has_just_ended_is_not_closed_yet(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = datetime.now(UTC).date()
    monkeypatch.setattr(rollups, "CLOSE_S", timedelta(days=2).total_seconds())
    await rolling(pool).make_pass(rest=0)
    opened = await pool.fetchval("SELECT open_day FROM hocket.rollup_state")
    assert day - timedelta(days=2) <= opened <= day - timedelta(days=1)


async def test_a_day_that_cannot_be_rolled_up_does_not_keep_the_others(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = rolling(pool)
    await rolled.make_pass(rest=0)
    await pool.execute(LATE_CALL, "c1")
    await pool.execute(LATE_CALL.replace("'acme'", "'rival'"), "c2")
    roll_again = rollups._roll_again

    async def failing(connection: asyncpg.Connection, tenant: str, day: Any) -> None:
        if tenant == "acme":
            await connection.execute("SELECT 1 / 0")
        await roll_again(connection, tenant, day)

    monkeypatch.setattr(rollups, "_roll_again", failing)
    assert await rolled.make_pass(rest=0) == 1
    left = await pool.fetch("SELECT DISTINCT tenant FROM hocket.dirty_day")
    assert [row["tenant"] for row in left] == ["acme"]
    await assert_exact(pool)


async def test_nobody_waits_for_a_day_that_is_rolled_up(pool: asyncpg.Pool) -> None:
    await pool.execute(LATE_CALL, "first")
    await rolling(pool).make_pass(rest=0)
    async with pool.acquire() as roller, roller.transaction(isolation="repeatable_read"):
        await roller.execute("UPDATE hocket.rollup_state SET ends = open_from")
        await roller.execute("DELETE FROM hocket.rollup_calls")
        async with asyncio.timeout(20.0):
            await pool.execute(LATE_CALL, "beside")
            assert await pool.fetchval("SELECT sum(calls) FROM report.cost_by_tenant") == 2


async def test_a_run_whose_id_is_used_again_is_two_runs_for_reports(pool: asyncpg.Pool) -> None:
    """The former run succeeded ten days ago, and the new one fails; each called in an experiment."""
    run_id, today = "r" + 24 * "a", datetime.now(UTC)
    former = today - timedelta(days=10)
    await pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date,"
        " open_from = current_date::timestamp AT TIME ZONE 'UTC'"
    )
    for at, status, usd in ((former, "succeeded", 7), (today, "failed", 1)):
        await pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at, finished_at) VALUES ($1, 0, 'acme', 'p', 1, $2,"
            " 'standard', '{}', $3, $3, $3)",
            run_id,
            status,
            at,
        )
        await pool.execute(
            "INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, model,"
            " backend, status, cost_usd, started_at, latency_ms, experiment, arm) VALUES ('c', 'acme',"
            " 'p', 1, $1, 'a', 'a', 'm', 'b', 'ok', $2, $3, 1, 'trial', 'new')",
            run_id,
            usd,
            at,
        )
        if at == former:
            await pool.execute("DELETE FROM hocket.run")
    await pool.execute(LATE_CALL.replace("2 days", "10 days"), "late")
    while await rolling(pool).make_pass(rest=0):
        pass
    assert not await pool.fetchval("SELECT count(*) FROM hocket.live_day")
    asked = {
        "SELECT status, cost_usd FROM report.cost_by_run": [("deleted", 7), ("failed", 1)],
        "SELECT kind, calls, cost_usd FROM report.waste": [("failed_run", 1, 1)],
        "SELECT runs, runs_succeeded, runs_not_succeeded, cost_usd FROM report.experiments": [
            (1, 0, 0, 7),
            (1, 0, 1, 1),
        ],
        "SELECT runs, calls, runs_judged, success_rate FROM report.experiment_results": [
            (2, 2, 1, 0.0)
        ],
    }
    for query, expected in asked.items():
        found = await pool.fetch(f"{query} ORDER BY cost_usd DESC" if "cost" in query else query)
        assert [tuple(row) for row in found] == expected, query


@pytest.mark.parametrize("is_reader", [True, False], ids=["report login", "another"])
async def test_a_report_login_cannot_keep_a_day_open(
    pool: asyncpg.Pool, database_url: str, monkeypatch: pytest.MonkeyPatch, is_reader: bool
) -> None:
    """It writes nothing, whatever transaction it leaves open."""
    monkeypatch.setattr(rollups, "MAX_SETTLES", 1)
    await pool.execute(LATE_CALL, "c")
    async with pool.acquire() as owner:
        await report_logins.create(owner, "acme_bi", "acme", "right-secret")
        login = {"user": "acme_bi", "password": "right-secret"} if is_reader else {}
        other = await asyncpg.connect(database_url, **login)
        try:
            await other.execute("SET default_transaction_read_only = off")
            await other.execute("BEGIN")
            await other.execute("ALTER ROLE CURRENT_USER SET work_mem = '8MB'")
            made = await rolling(pool).make_pass(rest=0)
            await other.execute("ROLLBACK")
        finally:
            await other.close()
            await report_logins.revoke(owner, "acme_bi")

    assert bool(made) is is_reader
