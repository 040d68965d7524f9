"""What is read of a run takes its own rows, however many runs and calls its tenant has."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from hocket.admin.runs.reads import LATEST_FIRST, SUMMARY
from hocket.kit.traces import reads
from hocket.ledger import kinds

MANY = 20_000
RUNS = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, spent_usd, parent)
SELECT 'r' || lpad(n::text, 24, '0'), 0, 'default', 'p', 1, 'succeeded', 'standard', '{}',
    now() - n * interval '1 second', now(), now(), 0,
    CASE WHEN n % 3 = 0 THEN jsonb_build_object('run_id', 'r' || lpad((n / 3)::text, 24, '0')) END
FROM generate_series(1, $1::int) n
"""
CALLS = """
INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd, started_at,
    latency_ms)
SELECT 'http:' || n, 'default', 'r' || lpad(n::text, 24, '0'), 'm', 'b', 'ok', 0.001, now(), 1
FROM generate_series(1, $1::int) n
"""
READ = {
    "list": (f"{SUMMARY} {LATEST_FIRST} 20", ("default",)),
    "trace": (reads.RUNS, ([f"r{3:024d}"], 2_000)),
    "kinds": (kinds._TOLD, ([f"r{3:024d}"],)),
}


@pytest.fixture
async def filled(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    await connection.execute(RUNS, MANY)
    await connection.execute(CALLS, MANY)
    await connection.execute("ANALYZE hocket.run, hocket.usage")
    yield connection
    await connection.close()


async def test_no_read_of_a_few_runs_goes_through_all_rows(filled: asyncpg.Connection) -> None:
    for name, (query, values) in READ.items():
        plan = await filled.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *values)
        assert sum(map(_rows_of, _nodes(json.loads(plan)[0]["Plan"]))) < MANY / 10, name


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _rows_of(node: dict[str, Any]) -> float:
    """Return how many rows a scan has read."""
    if "Scan" not in node["Node Type"]:
        return 0
    removed = sum(node.get(f"Rows Removed by {by}", 0) for by in ("Filter", "Index Recheck"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])
