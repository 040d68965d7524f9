"""The contract of both blob stores: files of one machine, and rows of Postgres."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from hocket.kit import blob_limits, blobs
from hocket.kit.blob_limits import BlobsFull, LimitedBlobs, MeasuredBlobs
from hocket.kit.blobs import BlobStore, BlobTooLarge, BlobUnknown, FileBlobs, PostgresBlobs
from hocket.kit.postgres.database import connect_pool

DATA = b"\x00\xffa long value" * 1_000
HASH = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


@pytest.fixture(params=["files", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, pool: asyncpg.Pool) -> MeasuredBlobs:
    return FileBlobs(tmp_path) if request.param == "files" else PostgresBlobs(pool)


async def test_what_is_put_comes_back_under_the_hash_of_its_bytes(store: BlobStore) -> None:
    for _ in range(2):
        ref = await store.put("acme", DATA)
        assert (ref.hash, ref.size) == (HASH, len(DATA))
    assert await store.get("acme", HASH) == DATA


async def test_another_tenants_blob_is_unknown(store: BlobStore) -> None:
    await store.put("acme", DATA)
    for tenant in ("globex", "default", "acme-2"):
        with pytest.raises(BlobUnknown):
            await store.get(tenant, HASH)
    await store.put("globex", DATA)
    assert await store.get("globex", HASH) == DATA


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "g" * 64, "0" * 64, "0" * 63])
async def test_a_hash_that_names_nothing_is_unknown(store: BlobStore, name: str) -> None:
    with pytest.raises(BlobUnknown):
        await store.get("acme", name)


async def test_a_blob_beyond_the_bound_is_refused(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "MAX_BLOB_BYTES", 10)
    with pytest.raises(BlobTooLarge):
        await store.put("acme", b"eleven byte")


async def test_blobs_of_before_are_the_default_tenants(tmp_path: Path, pool: asyncpg.Pool) -> None:
    (tmp_path / HASH[:2]).mkdir()
    (tmp_path / HASH[:2] / HASH).write_bytes(DATA)
    await pool.execute("INSERT INTO hocket.blob (hash, data) VALUES ($1, $2)", HASH, DATA)
    for store in (FileBlobs(tmp_path), PostgresBlobs(pool)):
        assert await store.get("default", HASH) == DATA
        with pytest.raises(BlobUnknown):
            await store.get("acme", HASH)


async def test_a_tenant_has_its_share_of_a_store_and_all_together_no_more_than_it_may_hold(
    store: MeasuredBlobs, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pool.execute("DELETE FROM hocket.tenant_blob")
    await pool.execute("DELETE FROM hocket.blob")
    await store.put("acme", b"a" * 400)  # by another process
    limited = LimitedBlobs(store, max_bytes=1_000)
    await limited.put("acme", b"b" * 100)
    with pytest.raises(BlobsFull, match="tenant `acme`"):
        await limited.put("acme", b"c")
    assert (await limited.put("acme", b"b" * 100)).size == 100, "it is there"
    await limited.put("globex", b"d" * 450)
    with pytest.raises(BlobsFull, match="all tenants"):
        await limited.put("initech", b"e" * 51)
    assert dict(await store.sizes()) == {"acme": 500, "globex": 450}

    # space that somebody else has freed is noticed
    await pool.execute("DELETE FROM hocket.tenant_blob")
    if isinstance(store, FileBlobs):
        await store.remove_unused(0)
    monkeypatch.setattr(blob_limits, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(blob_limits, "MEASURING_FACTOR", 0)
    limited._rest_s = 0.0
    await limited.put("acme", b"c")


async def test_blobs_in_files_leave_half_of_what_the_disk_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobs(tmp_path)
    await store.put("acme", b"a" * 10)

    async def room() -> int:
        return 100

    monkeypatch.setattr(store, "room", room)
    limited = LimitedBlobs(store, max_bytes=1_000)
    with pytest.raises(BlobsFull):
        await limited.put("globex", b"b" * 60)
    await limited.put("globex", b"b" * 20)


async def test_what_the_blobs_of_before_take_counts(tmp_path: Path, pool: asyncpg.Pool) -> None:
    await pool.execute("DELETE FROM hocket.tenant_blob")
    await pool.execute("DELETE FROM hocket.blob")
    (tmp_path / HASH[:2]).mkdir()
    (tmp_path / HASH[:2] / HASH).write_bytes(DATA)
    await pool.execute("INSERT INTO hocket.blob (hash, data) VALUES ($1, $2)", HASH, DATA)
    for store in (FileBlobs(tmp_path), PostgresBlobs(pool)):
        assert await store.sizes() == {"default": len(DATA)}


async def test_a_blob_that_is_put_again_takes_room_once(store: MeasuredBlobs) -> None:
    limited = LimitedBlobs(store, max_bytes=8 * len(DATA))
    for tenant in ("acme", "globex"):
        for _ in range(10):
            await limited.put(tenant, DATA)

    await limited.put("initech", DATA)
