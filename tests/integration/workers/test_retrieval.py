"""Indexing and search on a real Postgres with pgvector."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest

from hocket.kit.postgres.vector_indexes import COLLECTION_LOCK
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.deletion import delete_collection
from hocket.workers.retrieval.errors import (
    CollectionBusy,
    CollectionUnknown,
    EmbedderMissing,
    EmbeddingInvalid,
    FolderUnusable,
)
from hocket.workers.retrieval.index import IndexReport, add_folder, collections
from hocket.workers.retrieval.search import Passage, document_text, search
from support.places import ROOT

DDL = ROOT / "migrations" / "sql"
TIMEOUT_MS = 10_000

TENANT = "acme"


class WordEmbedder:
    """Vectors from hashed words; synonyms share a place, so that meaning is more than spelling."""

    def __init__(self, dimension: int = 64, model: str = "words") -> None:
        self.model = model
        self.dimension = dimension
        self.texts = 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.01] * self.dimension
        for word in re.findall(r"\w+", text.lower()):
            word = {"automobile": "car"}.get(word, word)
            place = hashlib.blake2b(word.encode(), digest_size=4).digest()
            vector[int.from_bytes(place) % self.dimension] += 1
        return vector


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4, timeout=10) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metals").mkdir()
    (tmp_path / "metals" / "iron.md").write_text("# Iron\n\nA car is made of iron and steel.\n")
    (tmp_path / "metals" / "gold.md").write_text("# Gold\n\nRings are made of gold.\n")
    (tmp_path / "gas.html").write_text("<h1>Neon</h1><p>Signs glow with neon.</p>")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.md").write_text("secret")
    return tmp_path


def counts(report: IndexReport) -> tuple[int, int, int, int]:
    return report.added, report.replaced, report.unchanged, report.removed


async def find(pool: asyncpg.Pool, *queries: str, **options: object) -> list[Passage]:
    return await search(
        IndexConnections(pool),
        "c",
        queries,
        tenant=TENANT,
        top_k=3,
        timeout_ms=TIMEOUT_MS,
        **options,  # type: ignore[arg-type]
    )


async def test_the_migration_can_be_undone_and_redone(pool: asyncpg.Pool) -> None:
    await pool.execute((DDL / "0004_retrieval.down.sql").read_text())
    assert await pool.fetchval("SELECT to_regnamespace('retrieval') IS NULL")
    await pool.execute((DDL / "0004_retrieval.up.sql").read_text())
    assert await pool.fetchval("SELECT count(*) FROM retrieval.collection") == 0


async def test_only_documents_of_known_kinds_are_indexed(pool: asyncpg.Pool, folder: Path) -> None:
    report = await add_folder(pool, folder, "c", tenant=TENANT)
    assert counts(report) == (3, 0, 0, 0)
    assert [
        (one.name, one.documents, one.chunks) for one in await collections(pool, tenant=TENANT)
    ] == [("c", 3, 3)]


async def test_a_second_run_touches_nothing(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    before = await pool.fetch("SELECT xmin::text, * FROM retrieval.document ORDER BY document_id")
    assert counts(await add_folder(pool, folder, "c", tenant=TENANT)) == (0, 0, 3, 0)
    assert before == await pool.fetch(
        "SELECT xmin::text, * FROM retrieval.document ORDER BY document_id"
    )


async def test_changed_files_are_replaced_and_gone_ones_dropped(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    (folder / "metals" / "iron.md").write_text("# Iron\n\nBridges are made of it.\n")
    (folder / "gas.html").unlink()
    assert counts(await add_folder(pool, folder, "c", tenant=TENANT)) == (0, 1, 1, 1)
    assert [p.text for p in await find(pool, "bridges")] == ["# Iron\n\nBridges are made of it."]
    assert await find(pool, "neon") == []
    assert await find(pool, "car") == []


async def test_another_folder_in_the_collection_is_left_alone(
    pool: asyncpg.Pool, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "gas.html").write_text("<p>Argon fills bulbs.</p>")
    await add_folder(pool, folder, "c", tenant=TENANT)
    await add_folder(pool, other, "c", tenant=TENANT)
    assert counts(await add_folder(pool, folder, "c", tenant=TENANT)) == (0, 0, 3, 0)
    assert [p.root for p in await find(pool, "argon")] == [str(other)]


async def test_an_unreadable_file_is_reported_and_the_others_are_indexed(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    (folder / "metals" / "gold.md").write_bytes(b"\xff\xfe\xff")
    report = await add_folder(pool, folder, "c", tenant=TENANT)
    assert counts(report) == (0, 0, 2, 0)
    assert [source for source, _ in report.unreadable] == ["metals/gold.md"]
    assert "UTF-8" in report.unreadable[0][1]
    assert "former version stays" in report.unreadable[0][1]
    assert [p.source for p in await find(pool, "rings")] == ["metals/gold.md"]


async def test_offsets_point_into_the_stored_text(pool: asyncpg.Pool, folder: Path) -> None:
    long = "Zürich uses copper \U0001f600 wires. " * 200
    (folder / "long.md").write_text(f"# Long\n\n{long}\n\n## Tail\n\nPlutonium is last.\n")
    await add_folder(pool, folder, "c", tenant=TENANT)
    for passage in [*await find(pool, "plutonium"), *await find(pool, "copper wires")]:
        text = await document_text(pool, "c", passage.source, tenant=TENANT, timeout_ms=TIMEOUT_MS)
        assert text is not None
        assert text[passage.start : passage.end] == passage.text


async def test_a_question_with_words_that_occur_nowhere_still_finds(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    found = await find(pool, "which jeweller sells rings of gold?")
    assert found[0].source == "metals/gold.md"
    assert found[0].ranks == {"words": 1}


async def test_rare_words_outweigh_common_ones(pool: asyncpg.Pool, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text("element element element metal")
    (tmp_path / "99.txt").write_text("a metal found by Curie")
    await add_folder(pool, tmp_path, "c", tenant=TENANT)
    assert (await find(pool, "element metal Curie"))[0].source == "99.txt"


async def test_several_queries_are_fused(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    found = await find(pool, "iron car", "neon signs")
    assert {p.source for p in found} == {"metals/iron.md", "gas.html"}


async def test_queries_that_are_odd_find_nothing_and_do_no_harm(
    pool: asyncpg.Pool, folder: Path
) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    for query in ("", "   ", "the of and", "' OR 1=1 --", "a & | ! ( \\ '' :*", "💥" * 2000):
        assert await find(pool, query) == []


async def test_vectors_find_what_words_do_not(pool: asyncpg.Pool, folder: Path) -> None:
    embedder = WordEmbedder()
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=embedder)
    found = await find(pool, "automobile", embedder=embedder)
    assert found[0].source == "metals/iron.md"
    assert found[0].ranks == {"vector": 1}
    assert await find(pool, "automobile") == []


async def test_small_vectors_are_searched_by_the_index(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=WordEmbedder(64))
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        number = await connection.fetchval("SELECT collection_id FROM retrieval.collection")
        plan = await connection.fetch(
            f"EXPLAIN SELECT ordinal FROM retrieval.chunk WHERE collection_id = {number}"
            " AND embedding IS NOT NULL"
            f" ORDER BY embedding::vector(64) <=> '{[0.1] * 64}'::vector(64) LIMIT 3"
        )
    assert any(f"chunk_embedding_{number}" in row[0] for row in plan)


async def test_large_vectors_are_compared_one_by_one(pool: asyncpg.Pool, folder: Path) -> None:
    embedder = WordEmbedder(2_500)
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=embedder)
    assert (await find(pool, "automobile", embedder=embedder))[0].source == "metals/iron.md"


async def test_only_new_text_is_embedded(pool: asyncpg.Pool, folder: Path) -> None:
    embedder = WordEmbedder()
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=embedder)
    embedder.texts = 0
    (folder / "gas.html").write_text("<p>Argon fills bulbs.</p>")
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=embedder)
    assert embedder.texts == 1


async def test_a_folder_of_its_own_may_change_the_model(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=WordEmbedder(64, "one"))
    two = WordEmbedder(32, "two")
    report = await add_folder(pool, folder, "c", tenant=TENANT, embedder=two, replace_vectors=True)
    assert (counts(report), report.dropped_model) == ((0, 3, 0, 0), "one")
    assert (await find(pool, "automobile", embedder=two))[0].source == "metals/iron.md"
    with pytest.raises(EmbedderMissing):
        await find(pool, "automobile", embedder=WordEmbedder(64, "one"))


async def test_models_are_not_mixed_in_a_collection(
    pool: asyncpg.Pool, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=WordEmbedder(64, "one"))
    with pytest.raises(EmbedderMissing, match="`one`"):
        await add_folder(
            pool,
            tmp_path_factory.mktemp("other"),
            "c",
            tenant=TENANT,
            embedder=WordEmbedder(64, "two"),
            replace_vectors=True,
        )


async def test_bad_vectors_are_refused(pool: asyncpg.Pool, folder: Path) -> None:
    class Forgetful(WordEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return []

    with pytest.raises(EmbeddingInvalid, match="0 vectors for 1 texts"):
        await add_folder(pool, folder, "c", tenant=TENANT, embedder=Forgetful())


async def test_two_runs_at_once_index_everything_once(pool: asyncpg.Pool, folder: Path) -> None:
    one, two = await asyncio.gather(
        add_folder(pool, folder, "c", tenant=TENANT), add_folder(pool, folder, "c", tenant=TENANT)
    )
    assert sorted([counts(one), counts(two)]) == [(0, 0, 3, 0), (3, 0, 0, 0)]


async def test_a_collection_that_another_run_adds_meanwhile_is_used(
    pool: asyncpg.Pool, folder: Path
) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO retrieval.collection (tenant, name) VALUES ($1, 'c')", TENANT
        )
        adding = asyncio.create_task(add_folder(pool, folder, "c", tenant=TENANT))
        while not await connection.fetchval(waiting):
            assert not adding.done(), adding
    assert counts(await adding) == (3, 0, 0, 0)


async def test_a_collection_that_stays_busy_is_refused(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT)
    async with pool.acquire() as connection:
        number = await connection.fetchval("SELECT collection_id FROM retrieval.collection")
        await connection.execute(
            "SELECT pg_advisory_lock($1::int, $2::int)", COLLECTION_LOCK, number
        )
        with pytest.raises(CollectionBusy):
            await add_folder(pool, folder, "c", tenant=TENANT, lock_wait_ms=0)
        await connection.execute("SELECT pg_advisory_unlock_all()")


async def test_dropping_a_collection_leaves_nothing_of_it(pool: asyncpg.Pool, folder: Path) -> None:
    await add_folder(pool, folder, "c", tenant=TENANT, embedder=WordEmbedder())
    await delete_collection(pool, "c", tenant=TENANT)
    assert await pool.fetchval("SELECT count(*) FROM retrieval.chunk") == 0
    assert not await pool.fetchval(
        "SELECT count(*) FROM pg_indexes WHERE indexname ~ '^chunk_embedding_'"
    )
    with pytest.raises(CollectionUnknown):
        await delete_collection(pool, "c", tenant=TENANT)


async def test_what_is_not_there_is_named(pool: asyncpg.Pool, tmp_path: Path) -> None:
    with pytest.raises(CollectionUnknown, match="`c`"):
        await find(pool, "x")
    with pytest.raises(FolderUnusable):
        await add_folder(pool, tmp_path / "nowhere", "c", tenant=TENANT)


async def test_a_collection_is_its_tenants_alone(pool: asyncpg.Pool, folder: Path) -> None:
    """Two tenants may call theirs the same; neither finds, lists, reads or drops the other's."""
    await add_folder(pool, folder, "c", tenant="acme")
    with pytest.raises(CollectionUnknown):
        await search(
            IndexConnections(pool),
            "c",
            ["gold"],
            tenant="globex",
            top_k=3,
            timeout_ms=TIMEOUT_MS,
        )
    with pytest.raises(CollectionUnknown):
        await delete_collection(pool, "c", tenant="globex")
    (passage, *_) = await find(pool, "gold")
    assert (
        await document_text(pool, "c", passage.source, tenant="globex", timeout_ms=TIMEOUT_MS)
        is None
    )
    assert await collections(pool, tenant="globex") == []
    report = await add_folder(pool, folder, "c", tenant="globex")
    assert report.unchanged == 0
    await delete_collection(pool, "c", tenant="globex")
    assert [one.name for one in await collections(pool, tenant="acme")] == ["c"]


async def test_a_file_whose_name_cannot_be_kept_is_left_out_alone(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """An entry of Postgres's index, and text of a database, hold less than a file system."""
    (tmp_path / "good.md").write_text("# Good\n\nWords.\n")
    below = tmp_path
    for number in range(13):
        below /= hashlib.sha512(str(number).encode()).hexdigest() + "x" * 60
    below.mkdir(parents=True)
    (below / "long.md").write_text("# Long\n\nWords.\n")
    (tmp_path / os.fsdecode(b"bad\xff.md")).write_text("# Bad\n\nWords.\n")
    report = await add_folder(pool, tmp_path, "names", tenant="default")
    assert (report.added, report.unreadable_count) == (1, 2)
    told = {reason: source for source, reason in report.unreadable}
    assert told["its name is not UTF-8"] == "bad\\udcff.md"
    assert len(told["its name and its folder's have over 2000 bytes"]) == 2_000
