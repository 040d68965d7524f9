"""What searches may cost, and what one tenant's searches leave to those of others."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.workers.nodes.retrieval import RetrievalNode
from hocket.workers.retrieval import search as searching
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.errors import IndexBusy, SearchTimeout
from hocket.workers.retrieval.index import add_folder
from hocket.workers.retrieval.search import RANKED_WORDS, Passage, search
from support.worker_rig import Rig

CONNECTIONS = 4
WAIT_MS = 20_000.0


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(
        database_url, min_size=1, max_size=CONNECTIONS, timeout=10
    ) as made:
        yield made


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    rig = await Rig.open(nats_url)
    yield rig
    await rig.close()


@pytest.fixture
async def index(pool: asyncpg.Pool, tmp_path: Path) -> IndexConnections:
    (tmp_path / "iron.md").write_text("# Iron\n\nA car is made of iron and steel.\n")
    for tenant in ("acme", "globex"):
        await add_folder(pool, tmp_path, "c", tenant=tenant)
    return IndexConnections(pool)


async def find(
    index: IndexConnections, queries: Sequence[str], tenant: str, timeout_ms: float = WAIT_MS
) -> list[Passage]:
    return await search(index, "c", queries, tenant=tenant, top_k=6, timeout_ms=timeout_ms)


async def test_a_tenant_whose_searches_hold_its_connections_leaves_the_others_to_others(
    index: IndexConnections, pool: asyncpg.Pool
) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE retrieval.collection")  # searches of acme wait for it
        held = [asyncio.create_task(find(index, ["iron"], "acme")) for _ in range(10)]
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(WAIT_MS / 1000):
            while await connection.fetchval(waiting) < CONNECTIONS // 2:
                pass
        async with index.connection("globex", timeout_s=WAIT_MS / 1000) as other:
            assert await other.fetchval("SELECT 1") == 1
        assert await connection.fetchval(waiting) == CONNECTIONS // 2
    for found in await asyncio.gather(*held):
        assert [passage.source for passage in found] == ["iron.md"]
    assert len(await find(index, ["iron"], "globex")) == 1


async def test_a_search_that_gets_no_connection_says_so(index: IndexConnections) -> None:
    share = CONNECTIONS // 2
    async with (
        index.connection("acme", timeout_s=5),
        index.connection("acme", timeout_s=5),
    ):
        with pytest.raises(IndexBusy) as refused:
            await find(index, ["iron"], "acme", timeout_ms=50)
    assert refused.value.retryable
    assert f"those of tenant `acme` may hold {share} of them" in str(refused.value)
    assert "waited 50 ms" in str(refused.value)
    assert len(await find(index, ["iron"], "acme")) == 1


async def test_a_step_whose_search_gets_no_connection_fails_with_that_reason(
    index: IndexConnections, rig: Rig
) -> None:
    async with (
        index.connection("acme", timeout_s=5),
        index.connection("acme", timeout_s=5),
        rig.worker({"retrieval": RetrievalNode(index)}),
    ):
        step: dict[str, Any] = {"type": "retrieval", "config": {"collection": "c"}}
        sent = await rig.send(**step, tenant="acme", input={"query": "iron"}, timeout_ms=1_000)
        other = await rig.send(**step, tenant="globex", input={"query": "iron"})
        assert len((await rig.result(other)).output["passages"]) == 1
        error = (await rig.result(sent)).error
    assert error is not None
    assert error.code == "index_busy"


async def test_the_statements_of_a_search_together_have_one_time_limit(
    index: IndexConnections, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = (
        "SELECT 1 AS document_id, 1 AS ordinal"
        " WHERE $1 = 0 OR $2 = '' OR $3 = 0 OR pg_sleep(0.1) IS NULL"
    )
    monkeypatch.setattr(searching, "_ALL_WORDS", slow)
    monkeypatch.setattr(searching, "MAX_SEARCH_MS", 400.0)
    with pytest.raises(SearchTimeout) as late:
        await find(index, ["iron"] * 16, "acme")
    assert "a search may take 400 ms" in " ".join(str(late.value).split())
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'pg_sleep'"
    assert await pool.fetchval(f"{running} AND pid <> pg_backend_pid()") == 0
    monkeypatch.undo()
    assert len(await find(index, ["iron"], "acme")) == 1


async def test_a_query_of_many_words_ranks_by_the_rarest(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """The rare words of a long query come from one text, and the common ones from all of them."""
    common = [f"common{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    rare = [f"rare{letter}" for letter in "abcdefgh"]
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(" ".join(common))
    (tmp_path / "99.txt").write_text(" ".join(rare))
    await add_folder(pool, tmp_path, "c", tenant="acme")
    words = common + rare
    assert len(words) > RANKED_WORDS
    random.Random(3).shuffle(words)
    found = await find(IndexConnections(pool), [" ".join(words)], "acme")
    assert found[0].source == "99.txt"


async def test_a_long_query_is_not_ranked_by_all_its_words(index: IndexConnections) -> None:
    """Ranking a chunk by one word that a query has hundreds of times would take minutes."""
    short, long = "iron " * 400, "iron " * 689
    assert (len(short.strip()), len(long.strip())) == (1_999, 3_444)
    (passage,) = await find(index, [short], "acme")
    assert passage.ranks == {"text": 1, "words": 1}
    (passage,) = await find(index, [long], "acme")
    assert passage.ranks == {"words": 1}
    (passage,) = await find(index, ["steel", long], "acme")
    assert passage.ranks == {"text#1": 1, "words#1": 1, "words#2": 1}


async def test_the_longest_words_of_a_query_are_looked_up(index: IndexConnections) -> None:
    many = [f"a{number:03}" for number in range(2 * searching.MAX_WORDS)]
    assert await find(index, [" ".join(many)], "acme") == []
    (passage,) = await find(index, [" ".join([*many, "steel"])], "acme")
    assert passage.source == "iron.md"


@pytest.mark.parametrize("size", [1, 2, 3, 8])
async def test_a_tenant_has_half_of_the_connections_and_one_at_least(
    database_url: str, size: int
) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=size, timeout=10) as pool:
        index = IndexConnections(pool)
        held = 0

        async def hold(ends: asyncio.Event) -> None:
            nonlocal held
            async with index.connection("acme", timeout_s=0.5):
                held += 1
                await ends.wait()

        ends = asyncio.Event()
        tasks = [asyncio.create_task(hold(ends)) for _ in range(size)]
        late = size - max(1, size // 2)
        refused: list[asyncio.Task[None]] = []
        async with asyncio.timeout(20):
            while len(refused) < late or held < max(1, size // 2):
                await asyncio.wait(tasks, timeout=0.01)
                refused = [task for task in tasks if task.done()]
        assert held == max(1, size // 2)
        ends.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, IndexBusy) for one in results) == late
