"""Measure lists of runs over REST and in the console: each filter, first pages and deep ones.

Fills a platform's database with `--runs` runs of three tenants over 30 days, then requests each page
from the REST process in rotation, one request at a time, for `--rounds` rounds. Prints one JSON line
per page: median and 95th percentile in milliseconds.

    .venv/bin/python -m bench.reading.run_lists --runs 1000000
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import uvloop
from prometheus_client import CollectorRegistry

from bench.support.processes import BenchFailed, percentile
from hocket.cli.local.platform import Platform
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups

DAYS = 30
TENANT = "t0"
PIECE_RUNS = 50_000
TIMEOUT_S = 600.0
DEEP_PAGES = 200

RUNS = f"""
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input, output,
    error, accepted_at, deadline_at, finished_at, budget_usd, spent_usd, labels)
SELECT 'r' || left(md5(n::text), 24), n % 16, 't' || n % 3, 'p' || n / 3 % 12, 1 + n % 2, status,
    'standard', jsonb_build_object('question', 'What became of order ' || n || '?'),
    CASE WHEN status IN ('succeeded', 'degraded')
        THEN jsonb_build_object('answer', 'It left as ' || n) END,
    CASE WHEN status = 'failed' THEN jsonb_build_object('code',
        (ARRAY['timeout', 'handler_failed', 'model_refused'])[1 + n / 7 % 3], 'message', 'Why.') END,
    at, at + interval '60 s', CASE WHEN status <> 'running' THEN at + interval '1 s' * (1 + n % 65) END,
    0.1, (n % 1000) * 0.0001, jsonb_build_object('customer', 'c' || n / 3 % 500)
FROM (SELECT n, now() - interval '{DAYS} days' * (1 - n::double precision / $3) AS at,
        CASE WHEN n > $3::integer - 3000 THEN 'running'
             ELSE (ARRAY['succeeded', 'succeeded', 'succeeded', 'succeeded', 'succeeded', 'succeeded',
                 'succeeded', 'degraded', 'failed', 'cancelled'])[1 + n / 11 % 10] END AS status
      FROM generate_series($1::integer, $2::integer - 1) n) runs
"""
RARE = """
UPDATE hocket.run SET labels = '{"customer": "rare"}' WHERE tenant = $1 AND run_id LIKE 'r0000%'
"""

OPENED = f"""
UPDATE hocket.rollup_state SET open_day = current_date - {DAYS + 1},
    open_from = (current_date - {DAYS + 1})::timestamp AT TIME ZONE 'UTC'
"""
"""Marks every day as not yet rolled up."""

PAGES = {
    "all": "",
    "pipeline": "pipeline=p4",
    "status running": "status=running",
    "status failed": "status=failed",
    "status rejected (none)": "status=rejected",
    "pipeline and status": "pipeline=p4&status=failed",
    "label": "labels=customer%3Dc7",
    "rare label": "labels=customer%3Drare",
    "no such label": "labels=customer%3Dnobody",
    "error code": "error_code=timeout",
    "no such error code": "error_code=nothing",
    "deadline missed": "deadline_missed=true",
    "cost over": "min_cost_usd=0.0998",
    "cost over all": "min_cost_usd=5",
    "content": "contains=order%20123",
    "no such content": "contains=nowhere%20at%20all",
    "one day": "since={since}&until={until}",
    "one day, failed": "since={since}&until={until}&status=failed",
    "one day, label": "since={since}&until={until}&labels=customer%3Dc7",
}


async def main(arguments: argparse.Namespace) -> None:
    """Fill a new platform, and measure."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder) / "data", services=("admin",)) as platform:
            owner = await asyncpg.connect(platform.database_url)
            await filled(owner, platform.database_url, arguments.runs)
            headers = {"Authorization": f"Bearer {platform.api_key}", "X-Hocket-Tenant": TENANT}
            async with aiohttp.ClientSession(platform.api_url, headers=headers) as session:
                pages = await addresses(owner, session)
                took = await timed(session, pages, arguments.rounds)
            await owner.close()
    for name, took_ms in took.items():
        ordered = sorted(took_ms)
        told(page=name, p50_ms=statistics.median(ordered), p95_ms=percentile(ordered, 0.95))
    worst = max(percentile(sorted(took_ms), 0.95) for took_ms in took.values())
    told(runs=arguments.runs, rounds=arguments.rounds, worst_p95_ms=worst)


async def filled(owner: asyncpg.Connection, url: str, runs: int) -> None:
    """Fill the table, with foreign keys and triggers disabled, and roll up its days."""
    begun_s = time.perf_counter()
    await owner.execute("SET session_replication_role = replica")
    for first in range(0, runs, PIECE_RUNS):
        await owner.execute(RUNS, first, min(first + PIECE_RUNS, runs), runs, timeout=TIMEOUT_S)
    await owner.execute(RARE, TENANT, timeout=TIMEOUT_S)
    await owner.execute("RESET session_replication_role")
    await owner.execute(OPENED, timeout=TIMEOUT_S)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await Rollups(pool, RollupMetrics(CollectorRegistry())).make_pass(rest=0)
    await owner.execute("VACUUM ANALYZE", timeout=TIMEOUT_S)
    size = await owner.fetchval("SELECT pg_size_pretty(pg_total_relation_size('hocket.run'))")
    told(what="filled", runs=runs, size=size, took_s=time.perf_counter() - begun_s)


async def addresses(owner: asyncpg.Connection, session: aiohttp.ClientSession) -> dict[str, str]:
    """Return the pages to request, by name: first pages, deep ones, and those of the console."""
    since, until = await owner.fetchrow(
        "SELECT now() - interval '20 days', now() - interval '19 days'"
    )
    times = {
        "since": since.isoformat().replace("+00:00", "Z"),
        "until": until.isoformat().replace("+00:00", "Z"),
    }
    found = {
        f"GET /v1/runs: {name}": f"/v1/runs?{query.format(**times)}"
        for name, query in PAGES.items()
    }
    for name, query in (
        ("all", ""),
        ("failed", "&status=failed"),
        ("label", "&labels=customer%3Dc7"),
    ):
        after = await deep(session, query)
        found[f"GET /v1/runs: {name}, deep"] = f"/v1/runs?limit=50{query}{after}"
    for name, query in (("24 h", "period=24h"), ("30 days", "period=30d"),
                        ("30 days, failed", "period=30d&status=failed"),
                        ("30 days, succeeded", "period=30d&status=succeeded"),
                        ("30 days, pipeline", "period=30d&pipeline=p4"),
                        ("30 days, version", "period=30d&pipeline=p4&version=2"),
                        ("30 days, error", "period=30d&error=timeout"),
                        ("30 days, deadline missed", "period=30d&missed=true"),
                        ("30 days, cost", "period=30d&min_cost=0.0998"),
                        ("30 days, content", "period=30d&contains=order%20123"),
                        ("7 days", "period=7d"),
                        ("30 days, label", "period=30d&labels=customer%3Dc7")):  # fmt: skip
        found[f"console: {name}"] = f"/console/runs?{query}&tenant={TENANT}"
        found[f"console's chart: {name}"] = f"/console/runs/histogram.json?{query}&tenant={TENANT}"
    return found


async def deep(session: aiohttp.ClientSession, query: str) -> str:
    """Return the cursor of a page far behind the first."""
    after = ""
    for _ in range(DEEP_PAGES):
        page = json.loads(await asked(session, f"/v1/runs?limit=50{query}{after}"))
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    return after


async def timed(
    session: aiohttp.ClientSession, pages: dict[str, str], rounds: int
) -> dict[str, list[float]]:
    """Request every page in rotation; the first round warms the caches and is not counted."""
    took: dict[str, list[float]] = {name: [] for name in pages}
    for number in range(rounds + 1):
        for name, address in pages.items():
            begun_s = time.perf_counter()
            await asked(session, address)
            if number:
                took[name].append((time.perf_counter() - begun_s) * 1_000)
    return took


async def asked(session: aiohttp.ClientSession, address: str) -> str:
    """Return the response body of an address; raise BenchFailed for an error."""
    async with session.get(address) as answer:
        text = await answer.text()
        if answer.status != 200:
            raise BenchFailed(f"{address}: {answer.status} {text[:300]}")
        return text


def told(**figures: Any) -> None:
    """Print a line of figures."""
    rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    uvloop.run(main(parser.parse_args()))
