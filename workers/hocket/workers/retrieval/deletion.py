"""Deletes documents: those whose file is gone, those of a folder, or a whole collection.

Each statement deletes a limited number of rows. A document goes as a whole, and a collection document by
document; if that is interrupted, deleting it again finishes it.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from hocket.kit.postgres import vector_indexes
from hocket.workers.retrieval.collection_lock import LOCK_WAIT_MS, sole_writer
from hocket.workers.retrieval.errors import CollectionUnknown, FolderNotIndexed

MAX_ROWS = 2_000
"""Rows that one statement changes."""
DOCUMENTS_AT_ONCE = 50
STATEMENT_TIMEOUT_MS = 60_000


async def folders_of(
    pool: asyncpg.Pool,
    collection: str,
    *,
    tenant: str,
    timeout_ms: float = STATEMENT_TIMEOUT_MS,
) -> dict[str, int]:
    """Return the folders of a tenant's collection, as they are stored, and the number of documents of
    each. Raises CollectionUnknown."""
    timeout_s = timeout_ms / 1000
    collection_id = await _id_of(pool, collection, tenant, timeout_s)
    rows = await pool.fetch(_FOLDERS, collection_id, timeout=timeout_s)
    return {row["root"]: row["documents"] for row in rows}


async def delete_collection(
    pool: asyncpg.Pool,
    collection: str,
    *,
    tenant: str,
    folder: str | None = None,
    timeout_ms: float = STATEMENT_TIMEOUT_MS,
    lock_wait_ms: float = LOCK_WAIT_MS,
) -> int:
    """Delete a tenant's collection, or only its documents of a folder (as it is stored); return how many
    documents were deleted.

    The pool needs two connections. Raises CollectionUnknown, FolderNotIndexed, CollectionBusy, or
    VectorIndexesNotBuilt (the documents are deleted, but not the collection's vector index).
    """
    timeout_s = timeout_ms / 1000
    collection_id = await _id_of(pool, collection, tenant, timeout_s)
    async with sole_writer(pool, collection, collection_id, lock_wait_ms, timeout_s) as connection:
        rows = await connection.fetch(_DOCUMENTS, collection_id, folder, timeout=timeout_s)
        if folder is not None and not rows:
            known = await folders_of(pool, collection, tenant=tenant, timeout_ms=timeout_ms)
            told = ", ".join(f"`{one}`" for one in known) or "none"
            raise FolderNotIndexed(collection=collection, folder=folder, folders=told)
        await delete_documents(connection, [row["document_id"] for row in rows], timeout_s)
        if folder is None:
            await connection.execute(_COLLECTION, collection_id, timeout=timeout_s)
            await vector_indexes.repair(connection, collection_id=collection_id)
    return len(rows)


async def delete_documents(connection: Any, ids: Sequence[int], timeout_s: float) -> None:
    """Delete documents with their chunks, some in each transaction."""
    for first in range(0, len(ids), DOCUMENTS_AT_ONCE):
        some = ids[first : first + DOCUMENTS_AT_ONCE]
        async with connection.transaction():
            await in_batches(connection, _CHUNKS, some, timeout_s)
            await connection.execute(_DELETE_DOCUMENTS, some, timeout=timeout_s)


async def in_batches(connection: Any, statement: str, value: object, timeout_s: float) -> None:
    """Run a statement that changes at most MAX_ROWS rows until it changes fewer."""
    while True:
        status = await connection.execute(statement, value, timeout=timeout_s)
        if int(status.rsplit(" ", 1)[1]) < MAX_ROWS:
            return


async def _id_of(pool: asyncpg.Pool, collection: str, tenant: str, timeout_s: float) -> int:
    found: int | None = await pool.fetchval(_ID, tenant, collection, timeout=timeout_s)
    if found is None:
        raise CollectionUnknown(collection=collection)
    return found


_ID = "SELECT collection_id FROM retrieval.collection WHERE tenant = $1 AND name = $2"

_FOLDERS = """
SELECT root, count(*) AS documents FROM retrieval.document WHERE collection_id = $1
GROUP BY root ORDER BY root
"""

_DOCUMENTS = """
SELECT document_id FROM retrieval.document
WHERE collection_id = $1 AND ($2::text IS NULL OR root = $2) ORDER BY document_id
"""

_CHUNKS = f"""
DELETE FROM retrieval.chunk WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM retrieval.chunk WHERE document_id = ANY ($1::bigint[]) LIMIT {MAX_ROWS}
))
"""

_DELETE_DOCUMENTS = "DELETE FROM retrieval.document WHERE document_id = ANY ($1::bigint[])"

_COLLECTION = "DELETE FROM retrieval.collection WHERE collection_id = $1"
