"""Measure each view of `report` over 30 days, row-level security, and booking beside reports.

Fills a database with `--rows` calls in `--runs` runs over 30 days (three tenants, 12 pipelines,
retries, labels, steps, critical paths) and queries every view for all of its rows: as the owner, and as
a login of one tenant compared with the owner filtering for that tenant. Also measures what reports cost
a ledger that books at the same time. Prints one JSON line per view; with `--plans FOLDER` each view's
plan is written to a file there, and its gist to another. `all_cpu_s` is the CPU time of the server
process, which other programs do not affect (with `--alone` no parallel workers take part, so it covers
everything). With `--keep FOLDER` the database stays there, and one that was filled there before is
queried as it is: nothing is filled, booked or dropped.

    .venv/bin/python -m bench.reading.reports --rows 2000000 --runs 200000
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import asyncpg
import uvloop
from prometheus_client import CollectorRegistry

from bench.reading.plans import gist
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.postgres import report_logins
from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.migrations import migrate
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import Record, booked
from hocket.ledger.store import insert
from hocket.ledger.upkeep import step_days, usage_partitions
from hocket.ledger.upkeep.retention import MAX_ROWS, MAY_DELETE
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from hocket.schemas.messages import Attribution, UsageRecord

DAYS = 30
TENANT = "t0"
STEPS = 5
"""Nodes of a run, over which its calls are spread."""
PIECE_RUNS = 20_000
BATCH = 500
BATCHES = 60
TIMEOUT_S = 600.0
PASSWORD = "only-of-this-bench"

RUNS = f"""
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, budget_usd, spent_usd, labels, critical_path)
SELECT 'r' || lpad(to_hex(n), 24, '0'), n % 16, 't' || n % 3, 'p' || n % 12, 1 + n % 2,
    (ARRAY['succeeded', 'succeeded', 'succeeded', 'degraded', 'failed'])[1 + n % 5], 'standard', '{{}}',
    at, at + interval '60 s', at + interval '1 s' * (1 + n % 90), 0.1, 0.01,
    jsonb_build_object('customer', 'c' || n % 50),
    jsonb_build_array(jsonb_build_array('s1', 's1', 1, 'queue', 200000, 1),
                      jsonb_build_array('s1', 's1', 1, 'work', 800000 + n % 1000, 1))
FROM (SELECT n, now() - interval '{DAYS} days' * (1 - n::double precision / $3) AS at
      FROM generate_series($1::integer, $2::integer - 1) n) runs
"""
STEP_DAYS = f"""
SELECT CASE WHEN at < today - interval '2 days' THEN hocket.make_step_days(at, at + interval '1 day')
            ELSE hocket.cover_steps(at) END, at, at + interval '1 day'
FROM (SELECT date_trunc('day', clock_timestamp(), 'UTC') AS today) now,
     generate_series(today - interval '{DAYS} days', today, interval '1 day') at
"""
STEP_ROWS = """
INSERT INTO hocket.step_{suffix} (run_id, key, path, type, role, state, attempt, ready_at,
    dispatched_at, started_at, finished_at, took_ms, tenant)
SELECT run_id, 's' || s, 's' || s, CASE s WHEN 0 THEN 'sql' ELSE 'llm' END, 'leaf', 'succeeded', 1,
    accepted_at, accepted_at, accepted_at + interval '20 ms', accepted_at + interval '900 ms', 880,
    tenant
FROM (SELECT run_id, accepted_at, tenant FROM hocket.run
      WHERE accepted_at >= $1 AND accepted_at < $2) r, generate_series(0, $3::integer - 1) s
"""
ATTEMPT_ROWS = """
INSERT INTO hocket.attempt_{suffix} (run_id, key, attempt, outcome, dispatched_at, started_at,
    finished_at, worker, tenant)
SELECT run_id, 's' || s, 0, 'failed', accepted_at, accepted_at, accepted_at, 'w', tenant
FROM (SELECT run_id, accepted_at, tenant FROM hocket.run
      WHERE accepted_at >= $1 AND accepted_at < $2) r, generate_series(0, $3::integer - 1) s
"""
CALLS = f"""
INSERT INTO hocket.usage (call_id, kind, tenant, pipeline, version, run_id, node, step, attempt, model,
    backend, status, input_tokens, output_tokens, cached_tokens, input_usd_per_mtok, output_usd_per_mtok,
    cost_usd, started_at, latency_ms, recorded_at, labels)
SELECT run_id || '/' || c, CASE c % 10 WHEN 1 THEN 'retry' WHEN 2 THEN 'cascade' ELSE 'call' END, tenant,
    pipeline, version, run_id, 's' || c % {STEPS}, 's' || c % {STEPS}, 1, 'm' || c % 4, 'b' || c % 2,
    CASE c % 10 WHEN 1 THEN 'error' ELSE 'ok' END, 1200, 80, 300, 1, 2, 0.00136,
    accepted_at + interval '10 ms' * c, 850, accepted_at + interval '1 s', labels
FROM (SELECT run_id, tenant, pipeline, version, accepted_at, labels FROM hocket.run
      WHERE run_id >= 'r' || lpad(to_hex($1::integer), 24, '0')
        AND run_id < 'r' || lpad(to_hex($2::integer), 24, '0')) r,
     generate_series(0, $3::integer - 1) c
"""
OPENED = "UPDATE hocket.rollup_state SET open_day = '-infinity', open_from = '-infinity'"
PARTITIONS = f"""
SELECT hocket.make_usage_partition(at, least(at + make_interval(days => $1), today))
FROM (SELECT date_trunc('day', clock_timestamp(), 'UTC') AS today) now,
     generate_series(today - interval '{DAYS} days', today - interval '1 day',
                     make_interval(days => $1)) at
"""
FIRST_DAY = "SELECT * FROM hocket.usage_partition ORDER BY from_at LIMIT 1"
VIEWS = "SELECT viewname FROM pg_views WHERE schemaname = 'report' ORDER BY 1"
COLUMNS = """
SELECT column_name FROM information_schema.columns WHERE table_schema = 'report' AND table_name = $1
"""
ALONE = "SET max_parallel_workers_per_gather = 0; SET work_mem = '32MB'; SET jit = off"
DEAREST_RUNS = "SELECT * FROM report.cost_by_run ORDER BY cost_usd DESC LIMIT 100"
STEPS_OF_A_RUN = "SELECT * FROM hocket.step WHERE run_id = (SELECT max(run_id) FROM hocket.run)"
ROWS_OF_RUNS = ("usage", "cost_by_run", "run_critical_path")
"""Views with one row per call or run; queried also for the 100 dearest runs or latest calls."""


async def main(arguments: argparse.Namespace) -> None:
    """Fill a new database, or use the one that was kept, and measure."""
    if arguments.keep is None:
        with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
            await timed(Path(folder), arguments)
    else:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        await timed(arguments.keep, arguments)


async def timed(folder: Path, arguments: argparse.Namespace) -> None:
    """Fill the database in a folder unless it already has runs, and measure."""
    async with EmbeddedServers(folder) as servers:
        await migrate(servers.database_url)
        pool = await connect_pool(servers.database_url, size=3, name="reports")
        if not await pool.fetchval("SELECT EXISTS (SELECT FROM hocket.run)"):
            async with pool.acquire() as owner:
                await filled(
                    owner,
                    arguments.rows,
                    arguments.runs,
                    arguments.partition_days,
                    steps=arguments.steps,
                    attempts=arguments.attempts,
                )
            await rolled_up(pool)
        await timed_views(pool, servers.database_url, arguments)
        if arguments.keep is None:
            await timed_booking(pool)
            await timed_day(pool)
            await timed_runs(pool)
        await pool.close()


async def filled(
    owner: asyncpg.Connection, rows: int, runs: int, days: int, *, steps: int, attempts: int
) -> None:
    """Fill the tables, with foreign keys and triggers disabled."""
    await owner.execute("ALTER TABLE hocket.usage DETACH PARTITION hocket.usage_before")
    await owner.execute("DROP TABLE hocket.usage_before")
    await owner.execute(PARTITIONS, days)
    begun_s = time.perf_counter()
    await owner.execute("SET session_replication_role = replica")
    for first in range(0, runs, PIECE_RUNS):
        last = min(first + PIECE_RUNS, runs)
        await owner.execute(RUNS, first, last, runs, timeout=TIMEOUT_S)
        await owner.execute(CALLS, first, last, rows // runs, timeout=TIMEOUT_S)
    await owner.execute("UPDATE hocket.step_days SET to_at = now() - interval '32 days'")
    for suffix, *bounds in await owner.fetch(STEP_DAYS, timeout=TIMEOUT_S):
        for rows_of, each in ((STEP_ROWS, steps), (ATTEMPT_ROWS, attempts)):
            await owner.execute(rows_of.format(suffix=suffix), *bounds, each, timeout=TIMEOUT_S)
    await owner.execute("RESET session_replication_role")
    await owner.execute("VACUUM ANALYZE", timeout=TIMEOUT_S)
    size = await owner.fetchval("SELECT pg_size_pretty(pg_database_size(current_database()))")
    told(
        what="filled",
        rows=rows,
        runs=runs,
        partition_days=days,
        steps=runs * steps,
        attempts=runs * attempts,
        size=size,
        took_s=time.perf_counter() - begun_s,
    )


async def rolled_up(pool: asyncpg.Pool) -> None:
    """Roll up all days before today, as ledgers do."""
    rollups = Rollups(pool, RollupMetrics(CollectorRegistry()))
    await pool.execute(OPENED)
    begun_s = time.perf_counter()
    days = await rollups.make_pass(rest=0)
    told(what="rolled_up", days=days, took_s=time.perf_counter() - begun_s)


async def timed_views(pool: asyncpg.Pool, url: str, arguments: argparse.Namespace) -> None:
    """Time every view, and for views with tenants also as a tenant's login."""
    async with pool.acquire() as owner:
        await report_logins.create(owner, "bench_reader", TENANT, PASSWORD)
        place = url.rpartition("@")[2]
        reader = await asyncpg.connect(f"postgresql://bench_reader:{PASSWORD}@{place}")
        await reader.execute("SET statement_timeout = 0")
        if arguments.alone:
            for one in (owner, reader):
                await one.execute(ALONE)
        try:
            for (view,) in await owner.fetch(VIEWS):
                if arguments.views and view not in arguments.views.split(","):
                    continue
                columns = {row[0] for row in await owner.fetch(COLUMNS, view)}
                asked = f"SELECT * FROM report.{view} WHERE true"
                if "day" in columns:
                    asked += f" AND day > (now() - interval '{DAYS} days')::date"
                last = (
                    " ORDER BY cost_usd DESC LIMIT 100" if "cost_usd" in columns else " LIMIT 100"
                )
                last = last if view in ROWS_OF_RUNS else ""
                last = " ORDER BY started_at DESC LIMIT 100" if view == "usage" else last
                found: dict[str, float] = await median_s(owner, asked + last)
                if "tenant" in columns:
                    own = f"{asked} AND tenant = '{TENANT}'{last}"
                    found["tenant_s"], found["tenants_login_s"] = await in_turn(
                        (owner, own), (reader, asked + last)
                    )
                told(what="view", view=view, **found)
                if arguments.plans:
                    plan = await owner.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {asked}{last}")
                    lines = [row[0] for row in plan]
                    for name, told_of in ((view, lines), (f"{view}.gist", gist(lines))):
                        (arguments.plans / f"{name}.txt").write_text("\n".join(told_of) + "\n")
        finally:
            await reader.close()
            await report_logins.revoke(owner, "bench_reader")


async def timed_booking(pool: asyncpg.Pool) -> None:
    """Time batches of bookings, alone and beside a reader that queries costs without pause."""
    for beside in (False, True, False, True):
        asking = asyncio.create_task(asked_forever(pool)) if beside else None
        prices, took_ms = KnownPrices(), []
        for number in range(BATCHES):
            begun_s = time.perf_counter()
            await insert(
                pool, [call(f"{time.time_ns()}-{number}-{one}") for one in range(BATCH)], prices
            )
            took_ms.append((time.perf_counter() - begun_s) * 1000)
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])
        told(what="booking", beside_reports=beside, rows=BATCH, p50_ms=statistics.median(took_ms))


async def asked_forever(pool: asyncpg.Pool) -> None:
    """Query costs until cancelled."""
    while True:
        await pool.fetch("SELECT * FROM report.cost_by_pipeline_day")


async def timed_day(pool: asyncpg.Pool) -> None:
    """Drop the oldest day of calls as the janitor does, beside a ledger that books, and delete the next
    day row by row, as was done before there were partitions."""
    async with pool.acquire() as connection:
        await usage_partitions.drop_behind(connection, _ago(DAYS - 1), pause=_none)  # a partial day
        booking = asyncio.create_task(booked_forever(pool, took_ms := []))
        begun_s = time.perf_counter()
        rows = await usage_partitions.drop_behind(connection, _ago(DAYS - 2), pause=_none)
        took_s = time.perf_counter() - begun_s
        booking.cancel()
        await asyncio.wait([booking])
        told(
            what="day_dropped",
            rows=rows,
            took_s=took_s,
            booked_meanwhile=len(took_ms),
            longest_booking_ms=max(took_ms, default=None),
        )
        part = await connection.fetchrow(FIRST_DAY)
        statement = usage_partitions.OLD_ROWS.format(name=part["name"])
        begun_s, gone, longest_s = time.perf_counter(), 0, 0.0
        while True:
            statement_s = time.perf_counter()
            bounds = (part["to_at"], part["from_at"], part["to_at"])
            status = await connection.execute(statement, *bounds, MAX_ROWS, timeout=TIMEOUT_S)
            longest_s = max(longest_s, time.perf_counter() - statement_s)
            gone += (number := int(status.rsplit(" ", 1)[1]))
            if number < MAX_ROWS:
                break
        took_s = time.perf_counter() - begun_s
        told(what="day_deleted", rows=gone, took_s=took_s, longest_statement_s=longest_s)


def _ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def timed_runs(pool: asyncpg.Pool) -> None:
    """Drop the oldest days of runs with their steps and attempts, beside a ledger that books and a
    reader of steps; then query costs of runs before those days are rolled up again."""
    async with pool.acquire() as connection:
        await connection.execute(MAY_DELETE)
        await step_days.drop_behind(connection, _ago(DAYS - 1))  # a partial day
        for days in range(DAYS - 2, DAYS - 5, -1):
            asked_s: list[float] = []
            took_ms: list[float] = []
            beside = asyncio.create_task(asked_for_runs(pool, asked_s))
            booking = asyncio.create_task(booked_forever(pool, took_ms))
            begun_s = time.perf_counter()
            runs = await step_days.drop_behind(connection, _ago(days))
            took_s = time.perf_counter() - begun_s
            for task in (beside, booking):
                task.cancel()
                await asyncio.wait([task])
            told(
                what="day_of_runs_dropped",
                runs=runs,
                took_s=took_s,
                longest_booking_ms=max(took_ms, default=None),
                longest_read_s=max(asked_s, default=None),
            )
    for _ in range(3):
        begun_s = time.perf_counter()
        await pool.fetch(DEAREST_RUNS)
        told(what="cost_by_run_behind_drops", took_s=time.perf_counter() - begun_s)


async def asked_for_runs(pool: asyncpg.Pool, took_s: list[float]) -> None:
    """Query the steps of a run until cancelled, and record how long each query took."""
    while True:
        begun_s = time.perf_counter()
        await pool.fetch(STEPS_OF_A_RUN)
        took_s.append(time.perf_counter() - begun_s)


async def booked_forever(pool: asyncpg.Pool, took_ms: list[float]) -> None:
    """Book batches until cancelled, and record how long each took."""
    prices = KnownPrices()
    while True:
        calls = [call(f"{time.time_ns()}-{one}") for one in range(BATCH)]
        begun_s = time.perf_counter()
        await insert(pool, calls, prices)
        took_ms.append((time.perf_counter() - begun_s) * 1000)


async def _none() -> None:
    """Do not pause."""


def call(call_id: str) -> Record:
    """Return a call's usage record as gateways publish it."""
    usage = UsageRecord(
        call_id=call_id,
        attribution=Attribution(
            tenant=TENANT, pipeline="p0", version=1, run_id="r" * 25, node="s1"
        ),
        model="m0",
        backend="b0",
        status="ok",
        input_tokens=1200,
        output_tokens=80,
        input_usd_per_mtok=Decimal(1),
        cost_usd=Decimal("0.0012"),
        started_at_ms=time.time() * 1000,
        latency_ms=850.0,
    )
    return booked(usage)


async def in_turn(*pairs: tuple[asyncpg.Connection, str]) -> list[float]:
    """Return each query's median over seven executions, alternating, after one that is not counted."""
    took_s: list[list[float]] = [[] for _ in pairs]
    for _ in range(8):
        for times_s, (connection, asked) in zip(took_s, pairs, strict=True):
            begun_s = time.perf_counter()
            await connection.fetch(asked, timeout=TIMEOUT_S)
            times_s.append(time.perf_counter() - begun_s)
    return [statistics.median(times_s[1:]) for times_s in took_s]


async def median_s(connection: asyncpg.Connection, asked: str) -> dict[str, float]:
    """Return the medians of elapsed and CPU time over three executions, after one that warms the cache.
    x"""
    took_s, took_cpu_s = [], []
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    for _ in range(4):
        begun_s, begun_cpu_s = time.perf_counter(), cpu_s(pid)
        await connection.fetch(asked, timeout=TIMEOUT_S)
        took_s.append(time.perf_counter() - begun_s)
        took_cpu_s.append(cpu_s(pid) - begun_cpu_s)
    return {"all_s": statistics.median(took_s[1:]), "all_cpu_s": statistics.median(took_cpu_s[1:])}


def cpu_s(pid: int) -> float:
    """Return the CPU time (s) that a process on this machine has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(**figures: object) -> None:
    """Print a line of figures."""
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=STEPS, help="Steps of a run.")
    parser.add_argument("--attempts", type=int, default=0, help="Failed attempts of a run.")
    parser.add_argument(
        "--partition-days", type=int, default=1, help="Days of a partition; 30 is one for all."
    )
    parser.add_argument("--plans", type=Path, help="An existing folder for the plans.")
    parser.add_argument("--keep", type=Path, help="Where the database stays, to be asked again.")
    parser.add_argument(
        "--alone", action="store_true", help="No parallel workers, and the owner as logins are set."
    )
    parser.add_argument("--views", default="", help="Only these, with commas between them.")
    uvloop.run(main(parser.parse_args()))
