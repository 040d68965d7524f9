"""Each collection with vectors has a usable vector index, whatever happened before; no other has one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest

from hocket.cli.backups import folder as backups
from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.kit.access.audit_log import Actor
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams, stream_configs
from hocket.kit.postgres import data_deletion, vector_indexes
from hocket.kit.postgres.data_deletion import Selection
from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.vector_indexes import VectorIndexesNotBuilt, repair
from hocket.workers.retrieval.index import add_folder

USABLE = """
SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE i.relname ~ '^chunk_embedding_' AND x.indisvalid ORDER BY 1
"""
ALL = "SELECT count(*) FROM pg_class WHERE relname ~ '^chunk_embedding_'"
BOUND_S = 60


class Embedder:
    """Vectors of a number of dimensions."""

    def __init__(self, dimension: int = 3) -> None:
        self.model = f"of-{dimension}"
        self._dimension = dimension

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(len(text))] * self._dimension for text in texts]


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    made = await connect_pool(database_url, size=4, name="test")
    yield made
    made.terminate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    (made / "a.md").write_text("# A\n\nThe first letter.\n")
    return made


async def index_of(pool: asyncpg.Pool, tenant: str = "acme") -> str:
    asked = "SELECT collection_id FROM retrieval.collection WHERE tenant = $1"
    return f"chunk_embedding_{await pool.fetchval(asked, tenant)}"


async def usable(connection: asyncpg.Pool | asyncpg.Connection) -> list[str]:
    return [row["relname"] for row in await connection.fetch(USABLE)]


async def found_by_doctor(url: str) -> list[Finding]:
    found = Database()
    await look_at_database(url, found)
    return [one for one in found.findings if one.name == "vector indexes"]


async def test_a_lost_index_is_reported_and_built_again_by_the_next_run(
    pool: asyncpg.Pool, folder: Path, database_url: str
) -> None:
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    name = await index_of(pool)
    assert await usable(pool) == [name]
    assert await found_by_doctor(database_url) == []
    await pool.execute(f"DROP INDEX retrieval.{name}")
    (finding,) = await found_by_doctor(database_url)
    assert finding.verdict is Verdict.NOTE
    assert finding.found.startswith("c (tenant acme)")
    assert "hocket index repair" in finding.cure
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    assert await usable(pool) == [name]
    assert await found_by_doctor(database_url) == []


async def test_an_index_that_waits_too_long_for_others_is_built_by_the_next_run(
    pool: asyncpg.Pool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tenant's document is being written; the leftover of the build is unusable."""
    limit = vector_indexes.repair.__kwdefaults__
    assert limit is not None
    async with pool.acquire() as other:
        writing = other.transaction()
        await writing.start()
        await other.execute("LOCK TABLE retrieval.chunk IN ROW EXCLUSIVE MODE")
        with monkeypatch.context() as patched:
            patched.setitem(limit, "limit_s", 1.0)
            report = await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
        assert report.added == 1
        assert report.vector_index == "c (tenant acme): it takes longer than 1 s"
        assert await usable(pool) == []
        # whoever writes now does not queue behind the build
        async with asyncio.timeout(BOUND_S):
            await add_folder(pool, folder, "words", tenant="rival")
        await writing.rollback()
    assert await pool.fetchval(ALL) == 1
    report = await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    assert (report.unchanged, report.vector_index) == (1, "")
    assert await usable(pool) == [await index_of(pool)]


async def test_writers_do_not_wait_for_a_build(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    await pool.execute(f"DROP INDEX retrieval.{await index_of(pool)}")
    waiting = "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase ~ 'waiting'"
    async with asyncio.timeout(BOUND_S), pool.acquire() as other, pool.acquire() as builder:
        writing = other.transaction()
        await writing.start()
        await other.execute("LOCK TABLE retrieval.chunk IN ROW EXCLUSIVE MODE")
        building = asyncio.create_task(repair(builder))
        while not await pool.fetchval(waiting):
            assert not building.done()
        await other.execute("LOCK TABLE retrieval.chunk IN ROW EXCLUSIVE MODE")
        await pool.execute("UPDATE retrieval.chunk SET heading = heading")
        assert not building.done()
        await writing.rollback()
        assert len((await building).built) == 1
    assert await usable(pool) == [await index_of(pool)]


async def test_several_collections_get_their_indexes_at_the_same_time(
    pool: asyncpg.Pool, folder: Path
) -> None:
    tenants = [f"t{number}" for number in range(6)]
    large = await connect_pool(pool._connect_args[0], size=20, name="test")
    try:
        async with asyncio.timeout(BOUND_S):
            reports = await asyncio.gather(
                *(
                    add_folder(large, folder, "c", tenant=one, embedder=Embedder())
                    for one in tenants
                )
            )
    finally:
        large.terminate()
    assert [report.vector_index for report in reports] == [""] * len(tenants)
    assert len(await usable(pool)) == len(tenants)


async def test_another_model_gets_an_index_of_its_own_dimension(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder(3))
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder(5), replace_vectors=True)
    name = await index_of(pool)
    assert await usable(pool) == [name]
    definition = await pool.fetchval("SELECT pg_get_indexdef($1::regclass)", f"retrieval.{name}")
    assert "vector(5)" in definition
    await add_folder(pool, folder, "c", tenant="acme", replace_vectors=True)
    assert await pool.fetchval(ALL) == 0


async def test_an_index_that_cannot_be_built_does_not_keep_others_from_being_built(
    pool: asyncpg.Pool, folder: Path
) -> None:
    for tenant in ("acme", "rival"):
        await add_folder(pool, folder, "c", tenant=tenant, embedder=Embedder())
        await pool.execute(f"DROP INDEX retrieval.{await index_of(pool, tenant)}")
    await pool.execute(
        "UPDATE retrieval.chunk SET embedding = '[1, 2]' WHERE collection_id ="
        " (SELECT collection_id FROM retrieval.collection WHERE tenant = 'acme')"
    )
    async with pool.acquire() as connection:
        with pytest.raises(
            VectorIndexesNotBuilt, match=r"c \(tenant acme\): expected 3 dimensions"
        ):
            await repair(connection)
        assert await connection.fetchval("SELECT count(*) FROM pg_locks WHERE objid = 0") == 0
        assert await connection.fetchval("SHOW statement_timeout") == "0"
    assert await usable(pool) == [await index_of(pool, "rival")]


async def test_deleting_a_tenants_data_takes_its_vector_indexes_along(
    pool: asyncpg.Pool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_deletion, "MAX_ROWS", 1)  # in pieces
    (folder / "b.md").write_text("# B\n\nThe second letter.\n")
    for tenant in ("acme", "rival"):
        await add_folder(pool, folder, "c", tenant=tenant, embedder=Embedder())
    async with pool.acquire() as connection:
        gone = await data_deletion.deleted(
            connection, Selection("acme"), Actor("os:test", "database")
        )
    assert gone["collections"] == 1
    assert await usable(pool) == [await index_of(pool, "rival")]
    assert await pool.fetchval(ALL) == 1


async def test_data_is_deleted_although_an_index_cannot_go_yet(
    pool: asyncpg.Pool, folder: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """A backup reads the collections for an hour."""
    monkeypatch.setattr(data_deletion, "INDEX_LIMIT_S", 0.5)
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    name = await index_of(pool)
    async with pool.acquire() as reader, pool.acquire() as connection:
        async with reader.transaction():
            await reader.execute("LOCK TABLE retrieval.chunk IN ACCESS SHARE MODE")
            await data_deletion.deleted(connection, Selection("acme"), Actor("os:test", "database"))
        (finding,) = await found_by_doctor(database_url)
        assert name in finding.found
        assert [str(one) for one in (await repair(connection)).dropped] == [name]
    assert await found_by_doctor(database_url) == []


async def test_a_restored_database_has_the_vector_indexes(
    servers: EmbeddedServers, nats_url: str, database_url: str, pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant="acme", embedder=Embedder())
    bus = await Bus.connect(nats_url, name="test")
    await pool.execute("CREATE DATABASE with_vectors")
    copy, url = folder.parent / "backup", servers.postgres.url_of("with_vectors")
    try:
        await ensure_streams(bus)
        await backups.take(copy, nats_url=nats_url, database_url=database_url)
        for one in stream_configs():
            await bus.api(f"STREAM.DELETE.{one['name']}", {}, timeout_ms=5_000)
        await backups.put_back(copy, nats_url=nats_url, database_url=url, replicas=1)
        target = await asyncpg.connect(url)
        assert await usable(target) == await usable(pool) == [await index_of(pool)]
        await target.close()
    finally:
        await bus.close()
        await pool.execute("DROP DATABASE with_vectors WITH (FORCE)")
