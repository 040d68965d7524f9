"""Documents of a collection, of a folder or of a moved folder can be deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from shutil import move

import asyncpg
import pytest

from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.vector_indexes import COLLECTION_LOCK
from hocket.workers.retrieval import deletion
from hocket.workers.retrieval.deletion import delete_collection, folders_of
from hocket.workers.retrieval.errors import (
    CollectionDeleted,
    CollectionUnknown,
    FolderNotIndexed,
)
from hocket.workers.retrieval.index import add_folder


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    made = await connect_pool(database_url, size=4, name="test")
    yield made
    made.terminate()


def filled(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"# {name}\n\nText of {name}.\n")
    return folder


async def test_a_moved_folder_is_noted_and_its_former_documents_can_be_deleted(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    old = filled(tmp_path / "old", "a.md", "b.md")
    first = await add_folder(pool, old, "c", tenant="acme")
    assert first.missing_folders == []
    new = Path(move(old, tmp_path / "new"))
    assert (await add_folder(pool, new, "c", tenant="acme")).missing_folders == [str(old)]
    assert await folders_of(pool, "c", tenant="acme") == {str(new): 2, str(old): 2}
    assert await delete_collection(pool, "c", tenant="acme", folder=str(old)) == 2
    assert await folders_of(pool, "c", tenant="acme") == {str(new): 2}
    assert (await add_folder(pool, new, "c", tenant="acme")).missing_folders == []


async def test_a_folder_with_a_name_of_its_own_may_be_elsewhere_each_time(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    one = filled(tmp_path / "job-1", "a.md", "b.md")
    two = filled(tmp_path / "job-2", "a.md")
    await add_folder(pool, one, "c", tenant="acme", stored_as="handbook")
    report = await add_folder(pool, two, "c", tenant="acme", stored_as="handbook")
    assert (report.added, report.unchanged, report.removed) == (0, 1, 1)
    assert report.missing_folders == []
    assert await folders_of(pool, "c", tenant="acme") == {"handbook": 1}


async def test_a_folder_that_is_not_in_the_collection_is_refused_with_those_that_are(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    with pytest.raises(CollectionUnknown):
        await delete_collection(pool, "c", tenant="acme", folder="/x")
    folder = filled(tmp_path / "here", "a.md")
    await add_folder(pool, folder, "c", tenant="acme")
    with pytest.raises(FolderNotIndexed, match=f"`/x`.*`{folder}`"):
        await delete_collection(pool, "c", tenant="acme", folder="/x")
    assert await folders_of(pool, "c", tenant="acme") == {str(folder): 1}


async def test_a_document_goes_with_all_its_chunks_although_they_take_several_statements(
    pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "MAX_ROWS", 2)
    monkeypatch.setattr(deletion, "_CHUNKS", deletion._CHUNKS.replace("LIMIT 2000", "LIMIT 2"))
    folder = filled(tmp_path / "here", "a.md")
    text = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 150 for n in range(9))
    (folder / "large.md").write_text(text)
    assert (await add_folder(pool, folder, "c", tenant="acme")).chunks > 8
    (folder / "large.md").unlink()
    assert (await add_folder(pool, folder, "c", tenant="acme")).removed == 1
    assert await pool.fetchval("SELECT count(*) FROM retrieval.chunk") == 1


async def test_a_run_says_that_its_collection_was_deleted_meanwhile(
    pool: asyncpg.Pool, tmp_path: Path
) -> None:
    folder = filled(tmp_path / "here", "a.md", "b.md")
    await pool.execute("INSERT INTO retrieval.collection (tenant, name) VALUES ('acme', 'c')")

    class Deleting:
        model = "words"

        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            await pool.execute("DELETE FROM retrieval.collection")
            return [[1.0, 2.0] for _ in texts]

    with pytest.raises(CollectionDeleted):
        await add_folder(pool, folder, "c", tenant="acme", embedder=Deleting())
    await pool.execute("INSERT INTO retrieval.collection (tenant, name) VALUES ('acme', 'c')")
    number = await pool.fetchval("SELECT collection_id FROM retrieval.collection")
    async with pool.acquire() as other:
        await other.execute("SELECT pg_advisory_lock($1::int, $2::int)", COLLECTION_LOCK, number)
        adding = asyncio.create_task(add_folder(pool, folder, "c", tenant="acme"))
        asked = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE 'SELECT pg_try_advisory_lock($1%' AND datname = current_database()"
        )
        while not await pool.fetchval(asked):
            assert not adding.done()
        await other.execute("DELETE FROM retrieval.collection")
        await other.execute("SELECT pg_advisory_unlock_all()")
        with pytest.raises(CollectionDeleted, match="was deleted"):
            await adding
