"""Deciders beside each other on a real Postgres, with runs that come and end meanwhile."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.coordinator.core.flow import decisions
from hocket.coordinator.core.flow.decisions import Passed
from hocket.coordinator.flow import store as module
from hocket.coordinator.flow.places import FlowQueue, write_flow
from hocket.coordinator.flow.store import FlowStore
from hocket.coordinator.storage.commit_batch import Batch
from hocket.schemas.pipeline.flow.spec import MAX_STARTS

LIMIT = 2
KEYS = ("a", "b", "c")
RUNS = 60
DECIDERS = 6
SEED = 7


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(database_url, min_size=DECIDERS, max_size=DECIDERS) as pool:
        yield pool


def row(run_id: str, key: str, at_ms: float, *gates: tuple[str, str]) -> list[tuple[Any, ...]]:
    """Return a run's rows: a gate of `concurrency` with its key, unless others are given."""
    every = gates or (("concurrency", f'{{"limit":{LIMIT}}}'),)
    return [
        (run_id, n, "t", "p", kind, key, rule, at_ms, n == len(every) - 1)
        for n, (kind, rule) in enumerate(every)
    ]


async def commit(pool: asyncpg.Pool, batch: Batch) -> set[FlowQueue]:
    async with pool.acquire() as connection, connection.transaction():
        return await write_flow(connection, batch, timeout_s=10)


async def states(pool: asyncpg.Pool) -> dict[tuple[str, int], str]:
    rows = await pool.fetch("SELECT run_id, gate, state FROM hocket.flow_place")
    return {(one["run_id"], one["gate"]): one["state"] for one in rows}


async def test_no_more_pass_than_the_limit_whoever_decides_beside_whom(pool: asyncpg.Pool) -> None:
    store, dice = FlowStore(pool), random.Random(SEED)
    under_way: dict[str, set[str]] = {key: set() for key in KEYS}
    most, passed = dict.fromkeys(KEYS, 0), 0
    keys = {f"r{n}": dice.choice(KEYS) for n in range(RUNS)}
    every = {FlowQueue("t", "p", "concurrency", key) for key in KEYS}
    ending: asyncio.Queue[str] = asyncio.Queue()
    full = asyncio.Event()

    async def decide(queues: set[FlowQueue]) -> None:
        nonlocal passed
        outcome = await store.decide("t", "p", queues)
        for run_id in outcome.started:
            key, passed = keys[run_id], passed + 1
            under_way[key].add(run_id)
            most[key] = max(most[key], len(under_way[key]))
            ending.put_nowait(run_id)
        if all(count >= LIMIT for count in most.values()):
            full.set()

    async def arrive(mine: list[str]) -> None:
        for n, run_id in enumerate(mine):
            await decide(await commit(pool, Batch(flow=row(run_id, keys[run_id], 1_000.0 + n))))

    async def end() -> None:
        await full.wait()  # however fast runs end, each key has been at its limit
        while passed < RUNS or not ending.empty():
            try:
                run_id = await asyncio.wait_for(ending.get(), 0.2)
            except TimeoutError:
                await decide(every)
                continue
            # before its commit: it may run no longer than that
            under_way[keys[run_id]].discard(run_id)
            await decide(await commit(pool, Batch(left=[run_id])))

    names = list(keys)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for first in range(3):
            group.create_task(arrive(names[first::3]))
        for _ in range(3):
            group.create_task(end())
    assert most == dict.fromkeys(KEYS, LIMIT)
    assert passed == RUNS
    assert await states(pool) == {}


async def test_a_place_whose_end_is_being_written_is_passed_over_and_counts(
    pool: asyncpg.Pool,
) -> None:
    store, queue = FlowStore(pool), FlowQueue("t", "p", "concurrency", "a")
    rows = [one for n in range(4) for one in row(f"r{n}", "a", 1_000.0 + n)]
    await commit(pool, Batch(flow=rows))
    assert (await store.decide("t", "p", {queue})).started == ["r0", "r1"]
    async with pool.acquire() as connection:
        ending = connection.transaction()
        await ending.start()
        await write_flow(connection, Batch(left=["r0", "r2"]), timeout_s=10)
        assert (await store.decide("t", "p", {queue})).started == []
        await ending.commit()
    assert (await store.decide("t", "p", {queue})).started == ["r3"]


async def test_who_hangs_in_a_decision_loses_it(pool: asyncpg.Pool) -> None:
    store, queue = FlowStore(pool), FlowQueue("t", "p", "concurrency", "a")
    await commit(pool, Batch(flow=row("r0", "a", 1_000.0)))
    connection = await pool.acquire()
    try:
        await connection.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '500ms'")
        await connection.execute(
            "INSERT INTO hocket.flow_pipeline (tenant, pipeline) VALUES ('t', 'p')"
        )
        await connection.execute("UPDATE hocket.flow_place SET state = 'passed'")
        outcome = None
        while outcome is None:  # it does not wait for the lock for long, and is made again
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                outcome = await store.decide("t", "p", {queue})
        assert outcome.started == ["r0"], "the other one is rolled back"
    finally:
        await pool.release(connection)


async def test_a_run_goes_from_gate_to_gate_and_is_let_go_at_the_last(pool: asyncpg.Pool) -> None:
    store, throttle = FlowStore(pool), FlowQueue("t", "p", "throttle", "a")
    gates = (("concurrency", '{"limit":2}'), ("throttle", '{"limit":1,"per_s":60}'))
    rows = [one for n in range(3) for one in row(f"r{n}", "a", 1_000.0 + n, *gates)]
    queues = await commit(pool, Batch(flow=rows))
    assert queues == {FlowQueue("t", "p", "concurrency", "a")}
    outcome = await store.decide("t", "p", queues)
    assert outcome.started == ["r0"]
    assert await states(pool) == {
        ("r0", 0): "passed",
        ("r0", 1): "passed",
        ("r1", 0): "passed",
        ("r1", 1): "waiting",
        ("r2", 0): "waiting",
        ("r2", 1): "ahead",
    }
    assert throttle in outcome.again, "there may be more that pass"
    due_ms = (await store.decide("t", "p", outcome.again)).due[throttle]
    assert 59_000 < due_ms <= 60_000


async def test_one_transaction_decides_few_keys_and_names_the_others(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 4, raising=False)
    store = FlowStore(pool)
    rows = []
    for n in range(7):
        gates = (("concurrency", '{"limit":9}'), ("throttle", '{"limit":1,"per_s":60}'))
        run = row(f"r{n}", "a", 1_000.0 + n, *gates)
        rows += [run[0], (*run[1][:5], f"of r{n}", *run[1][6:])]
    await commit(pool, Batch(flow=rows))
    outcome = await store.decide("t", "p", [FlowQueue("t", "p", "concurrency", "a")])
    assert len(outcome.started) == 3
    left = [f"r{n}" for n in range(7) if f"r{n}" not in outcome.started]
    assert {FlowQueue("t", "p", "throttle", f"of {run_id}") for run_id in left} <= outcome.again
    assert sorted((await store.decide("t", "p", outcome.again)).started) == left


async def test_who_waits_for_the_lock_gives_up_soon(pool: asyncpg.Pool) -> None:
    store, queue = FlowStore(pool), FlowQueue("t", "p", "concurrency", "a")
    await commit(pool, Batch(flow=row("r0", "a", 1_000.0)))
    async with pool.acquire() as other, other.transaction():
        await other.execute("INSERT INTO hocket.flow_pipeline (tenant, pipeline) VALUES ('t', 'p')")
        async with asyncio.timeout(4):
            with pytest.raises(asyncpg.LockNotAvailableError):
                await store.decide("t", "p", {queue})
    assert (await store.decide("t", "p", {queue})).started == ["r0"]


async def test_the_same_batch_written_again_takes_nothing_twice(pool: asyncpg.Pool) -> None:
    store = FlowStore(pool)
    batch = Batch(flow=row("r0", "a", 1_000.0))
    queues = await commit(pool, batch)
    assert (await store.decide("t", "p", queues)).started == ["r0"]
    assert (await store.decide("t", "p", await commit(pool, batch))).started == []
    assert await states(pool) == {("r0", 0): "passed"}


async def test_who_was_let_go_and_has_no_step_is_found_to_be_told_again(pool: asyncpg.Pool) -> None:
    store = FlowStore(pool)
    for run_id in ("r0", "r1"):
        await store.decide("t", "p", await commit(pool, Batch(flow=row(run_id, run_id, 1_000.0))))
        await pool.execute(RUN, run_id)
    await pool.execute("UPDATE hocket.flow_place SET changed_at = now() - interval '1 minute'")
    await pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at) "
        "VALUES ('r1', 's', 's', 'python', 'leaf', 'dispatched', 1, now())"
    )
    assert (await store.untold()).started == ["r0"]
    assert await store.sweep() == set()
    await pool.execute("UPDATE hocket.run SET status = 'failed', finished_at = now()")
    assert {queue.key for queue in await store.sweep()} == {"r0", "r1"}
    assert await states(pool) == {}


async def starts(pool: asyncpg.Pool, count: int, *, per_s: float, over_s: float) -> None:
    """Store starts of key `a`, one every 10 ms; the period of the first was over so long ago."""
    await pool.execute(STARTS, count, per_s, over_s)


async def test_a_sweep_deletes_all_starts_that_are_over_however_many(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TOLD", 10)
    monkeypatch.setattr(module, "MAX_SWEPT", 10, raising=False)
    await starts(pool, 35, per_s=60.0, over_s=30.0)
    await FlowStore(pool).sweep()
    assert await pool.fetchval("SELECT count(*) FROM hocket.flow_start") == 0


async def test_a_decision_reads_no_more_starts_than_a_rate_may_count(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[float] = []

    def room(kind: str, rule: Any, passed: Passed, now_ms: float) -> int:
        read.extend(passed.starts)
        return decisions.room(kind, rule, passed, now_ms)

    monkeypatch.setattr(module, "room", room)
    await starts(pool, MAX_STARTS + 100, per_s=60.0, over_s=-30.0)
    queue = FlowQueue("t", "p", "throttle", "a")
    rule = f'{{"limit":{MAX_STARTS},"per_s":60}}'
    await commit(pool, Batch(flow=row("new", "a", 1_000.0, ("throttle", rule))))
    outcome = await FlowStore(pool).decide("t", "p", {queue})
    assert len(read) == MAX_STARTS
    assert read == sorted(read)
    assert read[0] == await pool.fetchval(AT, "s100"), "the latest are those that count"
    assert outcome.started == []


AT = """
SELECT (extract(epoch FROM at) * 1000)::double precision FROM hocket.flow_start WHERE run_id = $1
"""
STARTS = """
INSERT INTO hocket.flow_start (tenant, pipeline, kind, key, run_id, at, until)
SELECT 't', 'p', 'throttle', 'a', 's' || n, moment.over - make_interval(secs => $2), moment.over
FROM generate_series(0, $1::int - 1) AS n, LATERAL (
    SELECT now() - make_interval(secs => $3::double precision - 0.01 * n) AS over) AS moment
"""
RUN = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at)
VALUES ($1, 0, 't', 'p', 1, 'running', 'standard', '{}', now(), now())
"""
