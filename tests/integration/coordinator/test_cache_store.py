"""The step cache's tables, under two connections that want the same entry at once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from hocket.coordinator.core.run.commands import LookUpCache, ReleaseCache
from hocket.coordinator.storage.cache_store import Answer, CacheStore, Filling
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process.clock import now_ms

HOUR_MS = 3_600_000.0


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=8, name="test")
    yield pool
    await pool.close()


@pytest.fixture
def store(pool: asyncpg.Pool) -> CacheStore:
    return CacheStore(pool)


def ask(run: str, key: str = "k", step: str = "a", **fields: Any) -> LookUpCache:
    return LookUpCache(
        **{
            "key": key,
            "tenant": "t",
            "run_id": run,
            "step": step,
            "ttl_ms": HOUR_MS,
            "claim_until_ms": now_ms() + HOUR_MS,
        }
        | fields
    )


def filling(run: str, key: str = "k", output: str = '{"x":1}', **fields: Any) -> Filling:
    return Filling(
        **{
            "key": key,
            "tenant": "t",
            "run_id": run,
            "step": "a",
            "ttl_ms": HOUR_MS,
            "output": output,
            "cost_usd": Decimal("0.25"),
        }
        | fields
    )


def turn(run: str, key: str = "k") -> Answer:
    return Answer(key, run, "a")


async def test_the_first_who_asks_computes_and_the_others_get_its_output(store: CacheStore) -> None:
    assert await store.look_up([ask("r1"), ask("r2")]) == [turn("r1")]
    assert await store.look_up([ask("r3")]) == []
    told = await store.fill([filling("r1")])
    assert [(a.run_id, a.output, a.cost_usd) for a in told] == [
        ("r2", '{"x":1}', Decimal("0.25")),
        ("r3", '{"x":1}', Decimal("0.25")),
    ]
    (hit,) = await store.look_up([ask("r4")])
    assert (hit.output, hit.computed_by_run, hit.computed_by_step) == ('{"x":1}', "r1", "a")
    assert await store.fill([filling("r1")]) == [], "everybody was told once"


async def test_a_hundred_at_once_over_many_connections_make_one_claim(store: CacheStore) -> None:
    asks = [[ask(f"r{n}", key=f"k{n % 3}"), ask(f"r{n}", key=f"k{(n + 1) % 3}", step="b")]
            for n in range(50)]  # fmt: skip
    answers = await asyncio.gather(*(store.look_up(batch) for batch in asks))
    turns = [answer.key for batch in answers for answer in batch]
    assert sorted(turns) == ["k0", "k1", "k2"]
    told = await store.fill([filling("r", key=f"k{n}") for n in range(3)])
    assert len(told) == 100 - 3


async def test_asking_again_keeps_the_claim_and_the_place(store: CacheStore) -> None:
    assert await store.look_up([ask("r1")]) == [turn("r1")]
    assert await store.look_up([ask("r1")]) == [turn("r1")]
    assert await store.look_up([ask("r2")]) == []
    assert await store.look_up([ask("r3")]) == []
    assert await store.look_up([ask("r2")]) == []
    assert await store.release([ReleaseCache("k", "r1", "a")]) == [turn("r2")]
    assert await store.release([ReleaseCache("k", "r2", "a")]) == [turn("r3")]
    assert await store.release([ReleaseCache("k", "r3", "a")]) == []
    assert await store.look_up([ask("r4")]) == [turn("r4")]


async def test_one_who_waits_and_leaves_is_not_told(store: CacheStore) -> None:
    await store.look_up([ask("r1"), ask("r2"), ask("r3")])
    assert await store.release([ReleaseCache("k", "r2", "a")]) == []
    assert [a.run_id for a in await store.fill([filling("r1")])] == ["r3"]


async def test_a_run_that_leaves_with_all_its_steps_hands_the_claim_to_another_run(
    store: CacheStore,
) -> None:
    await store.look_up([ask("r1", step=f"m[{n}]") for n in range(5)] + [ask("r2")])
    gone = [ReleaseCache("k", "r1", f"m[{n}]") for n in range(5)]
    assert await store.release(gone) == [turn("r2")]


async def test_a_claim_whose_time_is_up_is_taken(store: CacheStore) -> None:
    await store.look_up([ask("r1", claim_until_ms=now_ms() - 1)])
    assert await store.look_up([ask("r2")]) == [turn("r2")]


async def test_a_claim_whose_step_ended_without_a_word_is_taken(
    store: CacheStore, pool: asyncpg.Pool
) -> None:
    await store.look_up([ask("r1")])
    await pool.execute(
        """
        INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
                                input, accepted_at, deadline_at)
        VALUES ('r1', 0, 't', 'p', 1, 'running', 'standard', '{}', now(), now())
        """
    )
    await pool.execute(
        """
        INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, finished_at)
        VALUES ('r1', 'a', 'a', 'python', 'leaf', 'cancelled', 1, now(), now())
        """
    )
    asked_at = await pool.fetchval("SELECT now()")
    assert await store.look_up([ask("r2")]) == [], "its output may be on the way"
    answered_at, until = await pool.fetchrow("SELECT now(), claimed_until FROM hocket.step_cache")
    assert asked_at < until <= answered_at + timedelta(seconds=2)
    await pool.execute("UPDATE hocket.step_cache SET claimed_until = now()")
    assert await store.look_up([ask("r2")]) == [turn("r2")]


async def test_an_output_is_served_for_the_shorter_of_the_two_times(
    store: CacheStore, pool: asyncpg.Pool
) -> None:
    await store.fill([filling("r1", ttl_ms=60_000)])
    await pool.execute("UPDATE hocket.step_cache SET filled_at = filled_at - interval '10 s'")
    assert await store.look_up([ask("r2", ttl_ms=5_000)]) == [turn("r2")]
    (hit,) = await store.look_up([ask("r3", ttl_ms=50_000)])
    assert hit.output is not None
    await pool.execute("UPDATE hocket.step_cache SET fresh_until = now()")
    assert await store.look_up([ask("r3", ttl_ms=50_000)]) == [], "r2 computes"


async def test_a_sweep_takes_what_expired_and_leaves_the_rest(
    store: CacheStore, pool: asyncpg.Pool
) -> None:
    await store.fill([filling("r1", key=f"k{n}") for n in range(4)])
    await store.look_up([ask("r2", key="claimed")])
    await pool.execute(
        "UPDATE hocket.step_cache SET expires_at = now() - interval '1 s' WHERE key IN ('k0', 'k1')"
    )
    assert await store.sweep(1) == 1
    assert await store.sweep(10) == 1
    keys = await pool.fetch("SELECT key FROM hocket.step_cache ORDER BY key")
    assert [row["key"] for row in keys] == ["claimed", "k2", "k3"]


async def test_an_output_comes_back_as_it_was_written(store: CacheStore) -> None:
    text = '{"n":1.0,"e":1e5,"t":"a\\u0000b","big":12345678901234567890123}'
    await store.fill([filling("r1", output=text)])
    (hit,) = await store.look_up([ask("r2")])
    assert hit.output == text


async def test_fills_claims_and_releases_at_once_do_not_lock_each_other_out(
    store: CacheStore,
) -> None:
    async def churn(n: int) -> None:
        keys = [f"k{(n + m) % 7}" for m in range(5)]
        await store.look_up([ask(f"r{n}", key=key, step=key) for key in keys])
        await store.fill([filling(f"r{n}", key=key, step=key) for key in reversed(keys[:2])])
        await store.release([ReleaseCache(key, f"r{n}", key) for key in reversed(keys)])
        await store.sweep(3)

    await asyncio.gather(*(churn(n) for n in range(60)))
