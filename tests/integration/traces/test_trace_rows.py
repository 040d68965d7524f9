"""Traces from rows as they stand in Postgres: a query's time, odd outputs, another tenant's calls."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from hocket.admin.runs.reads import COST
from hocket.kit.postgres.database import connect_pool
from hocket.kit.traces.assembly import traces_of
from hocket.kit.traces.reads import ENDED_RUNS, read_rows
from hocket.schemas.tracing import attributes as names
from hocket.schemas.tracing.sampling import EndedRun, SamplingRule

RUN = "r" + "7" * 24
BEGUN = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
async def pool(database_url: str) -> "AsyncIterator[asyncpg.Pool[asyncpg.Record]]":
    pool = await connect_pool(database_url, size=1, name="test")
    await pool.execute(
        """INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
        input, accepted_at, deadline_at, finished_at)
        VALUES ($1, 0, 'acme', 'p', 1, 'succeeded', 'standard', '{}', $2, $3, $3)""",
        RUN,
        BEGUN,
        BEGUN + timedelta(seconds=1),
    )
    yield pool
    await pool.close()


async def names_of(pool: Any) -> list[str]:
    (trace,) = traces_of(await read_rows(pool, [RUN]))
    return [span.name for span in trace.spans]


@pytest.mark.parametrize(
    ("output", "is_shown"),
    [
        ('{"elapsed_ms": 12.5, "row_count": 3}', True),
        ('{"elapsed_ms": 1e400, "row_count": 1e400}', True),
        ('{"elapsed_ms": "soon"}', False),
        ('{"elapsed_ms": null}', False),
        ("[1]", False),
        ("null", False),
    ],
)
async def test_a_query_is_shown_as_its_node_tells_of_it(
    pool: "asyncpg.Pool[asyncpg.Record]", output: str, is_shown: bool
) -> None:
    await pool.execute(
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
        dispatched_at, started_at, finished_at, took_ms, output)
        VALUES ($1, 'a', 'a', 'sql', 'leaf', 'succeeded', 1, $2, $2, $2, $3, 900, $4)""",
        RUN,
        BEGUN,
        BEGUN + timedelta(seconds=1),
        output,
    )
    shown = ["invoke_workflow p", "step a", "queue", "process a"]
    assert await names_of(pool) == shown + ["SELECT"] * is_shown


async def test_calls_of_another_tenant_that_name_the_run_are_not_shown(
    pool: "asyncpg.Pool[asyncpg.Record]",
) -> None:
    for tenant in ("acme", "rival"):
        await pool.execute(
            """INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, started_at,
            latency_ms) VALUES ($1, $1, $2, $1, 'b', 'ok', $3, 5)""",
            tenant,
            RUN,
            BEGUN,
        )
    assert await names_of(pool) == ["invoke_workflow p", "call acme", "chat acme"]


async def test_a_run_has_cost_what_calls_of_the_http_door_cost_that_name_it(
    pool: "asyncpg.Pool[asyncpg.Record]",
) -> None:
    await pool.execute("SELECT hocket.cover_usage($1, 1)", BEGUN)
    await pool.execute("UPDATE hocket.run SET spent_usd = 0.25")
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
        " started_at, latency_ms) VALUES ('http:c', 'acme', $1, 'm', 'b', 'ok', 1, $2, 1)",
        RUN,
        BEGUN,
    )
    (trace,) = traces_of(await read_rows(pool, [RUN]))
    assert trace.spans[0].attributes[names.COST] == 1.25
    (row,) = await pool.fetch(ENDED_RUNS, [RUN])
    rule = SamplingRule(0, 0, Decimal(1))
    assert rule.reason(EndedRun(**dict(row))) == "expensive"


async def test_a_run_has_no_calls_of_a_deleted_one_that_its_key_began(
    pool: "asyncpg.Pool[asyncpg.Record]",
) -> None:
    booked = (
        "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
        " started_at, latency_ms) VALUES ($1, 'acme', $2, 'm', 'b', 'ok', 1, $3, 1)"
    )
    await pool.execute("SELECT hocket.cover_usage($1, 40)", BEGUN)
    await pool.execute(booked, "http:former", RUN, BEGUN)
    await pool.execute("UPDATE hocket.run SET accepted_at = $1", BEGUN + timedelta(days=31))
    await pool.execute("SELECT hocket.cover_usage($1, 1)", BEGUN + timedelta(days=31))
    await pool.execute(booked, "http:own", RUN, BEGUN + timedelta(days=31))
    await pool.execute(booked, "http:slow-clock", RUN, BEGUN + timedelta(days=29))
    (trace,) = traces_of(await read_rows(pool, [RUN]))
    assert trace.spans[0].attributes[names.COST] == 2
    calls = {span.attributes.get(names.CALL) for span in trace.spans} - {None}
    assert calls == {"http:own", "http:slow-clock"}
    (row,) = await pool.fetch(COST, RUN, "acme")
    assert (row["calls"], row["cost_usd"]) == (2, 2)
