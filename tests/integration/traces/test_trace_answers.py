"""Traces over REST while others ask: over a real NATS and Postgres."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from hocket.admin.traces import reads
from hocket.kit.traces.assembly import Trace, traces_of
from hocket.kit.traces.reads import TraceRows
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
RUN = "r" + "a" * 24
PATHS = (
    f"/v1/runs/{RUN}/trace",
    f"/console/runs/{RUN}/trace.json",
    f"/console/runs/{RUN}?view=trace",
)


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        yield rest


@pytest.mark.parametrize("path", PATHS)
async def test_others_are_answered_while_a_long_trace_is_made(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await rest.pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ($1, 0, 'default', 'greet', 1, 'running', 'standard', '{}', $2, $2)",
        RUN,
        datetime.now(UTC),
    )
    loop, begun, answered = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    were_answered: list[bool] = []

    def slow(rows: TraceRows) -> list[Trace]:
        loop.call_soon_threadsafe(begun.set)
        were_answered.append(answered.wait(5))
        return traces_of(rows)

    monkeypatch.setattr(reads, "traces_of", slow)
    asking = asyncio.create_task(rest.get(path))
    await begun.wait()
    assert (await rest.get("/v1/roles")).status == 200
    answered.set()

    assert (await asking).status == 200
    assert were_answered == [True]
