"""Fills collections: turns folders of files into documents and chunks in the schema `retrieval`.

Adding a folder again is cheap and safe: files with unchanged bytes and recipe are skipped, changed ones
are replaced, and documents whose file is gone are dropped. Each document is one transaction, so that a
search sees either its old or its new state, and an interrupted run continues where it stopped. An
advisory lock allows one run at a time per collection. Files that cannot be read are reported, and their
earlier index is dropped; if the database is unavailable, asyncpg's error is raised.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres.session_cleanup import given_up
from hocket.schemas.checks.plain_json import shown_text
from hocket.workers.retrieval import chunking, extraction
from hocket.workers.retrieval.chunking import DEFAULT_SIZES, Chunk, Sizes
from hocket.workers.retrieval.embedding import (
    MAX_INDEXED_DIMENSION,
    Embedder,
    as_literal,
    embedded,
)
from hocket.workers.retrieval.errors import (
    CollectionBusy,
    CollectionUnknown,
    DocumentUnreadable,
    EmbedderMissing,
    FolderUnusable,
)
from hocket.workers.retrieval.extraction import Extracted
from hocket.workers.retrieval.reader import Reader

MAX_FILES = 100_000
MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_NAME_BYTES = 2_000
"""The limit on a folder's name plus a file's name; an index entry of Postgres has at most 2,704
bytes."""
MAX_REPORTED = 1_000
EMBED_BATCH = 64
STATEMENT_TIMEOUT_MS = 60_000
LOCK_WAIT_MS = 60_000
LOCK_POLL_S = 0.1
LOCK_CLASS = 7_306_412
"""The first key of our advisory locks; the second is the collection's id."""

log = structlog.get_logger()


@dataclass
class IndexReport:
    """What one run did: its files by outcome. `unreadable` holds (source, reason)."""

    collection: str
    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unreadable_count: int = 0


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection and how much is in it."""

    name: str
    documents: int
    chunks: int
    embedding_model: str
    dimension: int | None


async def add_folder(
    pool: asyncpg.Pool,
    folder: Path,
    collection: str,
    *,
    tenant: str,
    embedder: Embedder | None = None,
    sizes: Sizes = DEFAULT_SIZES,
    statement_timeout_ms: float = STATEMENT_TIMEOUT_MS,
    lock_wait_ms: float = LOCK_WAIT_MS,
) -> IndexReport:
    """Index the files of a folder and its subfolders for a tenant; documents whose file is gone are
    dropped.

    The pool needs two connections, one of which holds the lock. Raises FolderUnusable, CollectionBusy,
    EmbeddingInvalid, or EmbedderMissing (other folders in the collection have vectors of another model).
    """
    root, files = await asyncio.to_thread(_files_of, folder)
    timeout_s = statement_timeout_ms / 1000
    collection_id = await pool.fetchval(_ADD_COLLECTION, tenant, collection, timeout=timeout_s)
    async with _sole_writer(pool, collection, collection_id, lock_wait_ms, timeout_s):
        run = _Run(pool, root, collection, collection_id, embedder, sizes, timeout_s)
        try:
            return await run.index(files)
        finally:
            run.close()


async def collections(
    pool: asyncpg.Pool, *, tenant: str, timeout_ms: float = STATEMENT_TIMEOUT_MS
) -> list[CollectionInfo]:
    """Return a tenant's collections, sorted by name."""
    rows = await pool.fetch(_COLLECTIONS, tenant, timeout=timeout_ms / 1000)
    return [CollectionInfo(**row) for row in rows]


async def drop_collection(
    pool: asyncpg.Pool,
    collection: str,
    *,
    tenant: str,
    timeout_ms: float = STATEMENT_TIMEOUT_MS,
) -> None:
    """Delete a tenant's collection with all its documents; raises CollectionUnknown."""
    async with pool.acquire() as connection, connection.transaction():
        deleted = await connection.fetchval(
            _DROP_COLLECTION,
            tenant,
            collection,
            timeout=timeout_ms / 1000,
        )
        if deleted is None:
            raise CollectionUnknown(collection=collection)
        await connection.execute(
            f"DROP INDEX IF EXISTS retrieval.{_index_name(deleted)}", timeout=timeout_ms / 1000
        )


# ---- one run --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    document_id: int
    content_hash: str
    recipe: str


class _Run:
    """One walk over a folder's files, with the collection's lock held."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        root: str,
        collection: str,
        collection_id: int,
        embedder: Embedder | None,
        sizes: Sizes,
        timeout_s: float,
    ) -> None:
        self._pool = pool
        self._root = root
        self._collection_id = collection_id
        self._embedder = embedder
        self._sizes = sizes
        self._timeout_s = timeout_s
        self._dimension: int | None = None
        self._report = IndexReport(collection)
        self._reader = Reader()
        model = embedder.model if embedder is not None else ""
        self._recipe = (
            f"extraction={extraction.VERSION} chunking={chunking.VERSION} "
            f"sizes={sizes.max_chars}/{sizes.overlap_chars}/{sizes.join_chars} model={model}"
        )

    async def index(self, files: Sequence[tuple[str, Path]]) -> IndexReport:
        await self._check_model()
        known = await self._known()
        kept = set()
        for source, path in files:
            try:
                if await self._index_file(source, path, known.get(source)):
                    kept.add(source)
            except (DocumentUnreadable, OSError) as error:
                self._note_unreadable(source, error)
        gone = [was.document_id for source, was in known.items() if source not in kept]
        if gone:
            await self._pool.execute(_DROP_DOCUMENTS, gone, timeout=self._timeout_s)
            self._report.removed = len(gone)
        return self._report

    def close(self) -> None:
        """End the process that reads documents."""
        self._reader.close()

    async def _check_model(self) -> None:
        """Make our model the collection's; raise EmbedderMissing if documents of other folders have
        vectors of another model."""
        row = await self._pool.fetchrow(
            _MODEL_OF, self._collection_id, self._root, timeout=self._timeout_s
        )
        assert row is not None, "the lock is held, so the collection is there"
        model = self._embedder.model if self._embedder is not None else ""
        self._dimension = row["dimension"]
        if row["embedding_model"] == model:
            return
        if row["has_others"]:
            raise EmbedderMissing(
                collection=self._report.collection,
                model=row["embedding_model"] or "none",
                given=model or "none",
            )
        self._dimension = None
        async with self._pool.acquire() as connection, connection.transaction():
            index = f"retrieval.{_index_name(self._collection_id)}"
            await connection.execute(f"DROP INDEX IF EXISTS {index}", timeout=self._timeout_s)
            for statement in (_FORGET_VECTORS, _FORGET_MODEL):
                await connection.execute(statement, self._collection_id, timeout=self._timeout_s)

    async def _known(self) -> dict[str, _Known]:
        rows = await self._pool.fetch(
            _KNOWN, self._collection_id, self._root, timeout=self._timeout_s
        )
        return {
            row["source"]: _Known(row["document_id"], row["content_hash"], row["recipe"])
            for row in rows
        }

    async def _index_file(self, source: str, path: Path, known: _Known | None) -> bool:
        _check_name(self._root, source)
        data = await asyncio.to_thread(_read, path, source)
        content_hash = hashlib.sha256(data).hexdigest()
        if known and (known.content_hash, known.recipe) == (content_hash, self._recipe):
            self._report.unchanged += 1
            return True
        document, pieces = await self._reader.cut(data, source, self._sizes)
        vectors = await self._vectors(pieces)
        await self._write(source, content_hash, document, pieces, vectors)
        self._report.chunks += len(pieces)
        if known:
            self._report.replaced += 1
        else:
            self._report.added += 1
        return True

    async def _vectors(self, pieces: Sequence[Chunk]) -> list[str | None]:
        if self._embedder is None:
            return [None] * len(pieces)
        literals: list[str | None] = []
        for first in range(0, len(pieces), EMBED_BATCH):
            texts = [_searched(piece) for piece in pieces[first : first + EMBED_BATCH]]
            vectors = await embedded(self._embedder, texts, self._dimension)
            if self._dimension is None:
                await self._take_dimension(len(vectors[0]))
            literals.extend(map(as_literal, vectors))
        return literals

    async def _take_dimension(self, dimension: int) -> None:
        assert self._embedder is not None
        await self._pool.execute(
            _TAKE_MODEL,
            self._collection_id,
            self._embedder.model,
            dimension,
            timeout=self._timeout_s,
        )
        self._dimension = dimension
        if dimension <= MAX_INDEXED_DIMENSION:
            # a constant predicate and type, so that one table can hold vectors of every dimension
            await self._pool.execute(
                f"CREATE INDEX IF NOT EXISTS {_index_name(self._collection_id)}"
                f" ON retrieval.chunk USING hnsw"
                f" ((embedding::vector({dimension:d})) vector_cosine_ops)"
                f" WHERE collection_id = {self._collection_id:d}",
                timeout=self._timeout_s,
            )

    async def _write(
        self,
        source: str,
        content_hash: str,
        document: Extracted,
        pieces: Sequence[Chunk],
        vectors: Sequence[str | None],
    ) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            document_id = await connection.fetchval(
                _PUT_DOCUMENT,
                self._collection_id,
                self._root,
                source,
                document.title,
                document.media_type,
                content_hash,
                self._recipe,
                document.text,
                timeout=self._timeout_s,
            )
            await connection.execute(
                "DELETE FROM retrieval.chunk WHERE document_id = $1",
                document_id,
                timeout=self._timeout_s,
            )
            rows = _rows(document_id, self._collection_id, pieces, vectors)
            await connection.executemany(_PUT_CHUNK, rows, timeout=self._timeout_s)

    def _note_unreadable(self, source: str, error: Exception) -> None:
        reason = (
            str(error.fields["reason"]) if isinstance(error, DocumentUnreadable) else str(error)
        )
        shown = shown_text(source, MAX_NAME_BYTES)
        log.warning("document_unreadable", source=shown, reason=reason)
        self._report.unreadable_count += 1
        if len(self._report.unreadable) < MAX_REPORTED:
            self._report.unreadable.append((shown, reason))


def _rows(
    document_id: int, collection_id: int, pieces: Sequence[Chunk], vectors: Sequence[str | None]
) -> list[tuple[Any, ...]]:
    return [
        (
            document_id,
            ordinal,
            collection_id,
            piece.id,
            piece.start,
            piece.end,
            list(piece.heading_path),
            _heading(piece),
            piece.text,
            vector,
        )
        for ordinal, (piece, vector) in enumerate(zip(pieces, vectors, strict=True))
    ]


def _heading(piece: Chunk) -> str:
    return " / ".join(dict.fromkeys((piece.title, *piece.heading_path)))


def _searched(piece: Chunk) -> str:
    return f"{_heading(piece)}\n{piece.text}"


@asynccontextmanager
async def _sole_writer(
    pool: asyncpg.Pool, collection: str, collection_id: int, wait_ms: float, timeout_s: float
) -> AsyncIterator[None]:
    """Hold the collection's lock on a separate connection; the lock ends with the connection."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    keys = (LOCK_CLASS, collection_id % 2**31)
    unlock = "SELECT pg_advisory_unlock({}::int, {}::int)".format(*keys)
    async with pool.acquire() as connection, given_up(connection, unlock, timeout_s=timeout_s):
        while not await connection.fetchval(
            "SELECT pg_try_advisory_lock($1::int, $2::int)", *keys, timeout=timeout_s
        ):
            if loop.time() >= deadline:
                raise CollectionBusy(collection=collection, waited_ms=round(wait_ms))
            await asyncio.sleep(LOCK_POLL_S)
        yield


# ---- files ----------------------------------------------------------------------------------


def _files_of(folder: Path) -> tuple[str, list[tuple[str, Path]]]:
    """Return the folder's own path, and (path in it, path) of each file of a known kind, sorted."""
    try:
        root = folder.resolve(strict=True)
    except OSError as error:
        raise FolderUnusable(folder=str(folder), reason=error.strerror or str(error)) from error
    if not root.is_dir():
        raise FolderUnusable(folder=str(folder), reason="it is not a folder")
    files = []
    for path in _walk(root):
        files.append((path.relative_to(root).as_posix(), path))
        if len(files) > MAX_FILES:
            raise FolderUnusable(folder=str(folder), reason=f"it has over {MAX_FILES} documents")
    return str(root), sorted(files)


def _walk(root: Path) -> Iterator[Path]:
    """Yield documents; hidden files, hidden folders and links that lead outside are skipped."""

    def refuse(error: OSError) -> None:
        raise FolderUnusable(folder=str(root), reason=str(error)) from error

    for place, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            known = path.suffix.lower() in extraction.MEDIA_TYPES
            if known and not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path


def _check_name(root: str, source: str) -> None:
    """Raise DocumentUnreadable for a name that Postgres cannot store."""
    try:
        size = len(root.encode()) + len(source.encode())
    except UnicodeEncodeError:
        raise DocumentUnreadable(source=source, reason="its name is not UTF-8") from None
    if size > MAX_NAME_BYTES:
        reason = f"its name and its folder's have over {MAX_NAME_BYTES} bytes"
        raise DocumentUnreadable(source=source, reason=reason)


def _read(path: Path, source: str) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DocumentUnreadable(source=source, reason=f"it has over {MAX_FILE_BYTES} bytes")
    return data


# ---- statements -----------------------------------------------------------------------------


def _index_name(collection_id: int) -> str:
    return f"chunk_embedding_{collection_id:d}"


# An update that changes nothing returns the row, even one that was added since this statement began.
_ADD_COLLECTION = """
INSERT INTO retrieval.collection (tenant, name) VALUES ($1, $2)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name
RETURNING collection_id
"""

_DROP_COLLECTION = """
DELETE FROM retrieval.collection WHERE tenant = $1 AND name = $2 RETURNING collection_id
"""

_MODEL_OF = """
SELECT embedding_model, dimension,
       EXISTS (SELECT FROM retrieval.document d
               WHERE d.collection_id = c.collection_id AND d.root <> $2) AS has_others
FROM retrieval.collection c WHERE collection_id = $1
"""

_FORGET_MODEL = """
UPDATE retrieval.collection SET embedding_model = '', dimension = NULL WHERE collection_id = $1
"""

_FORGET_VECTORS = """
UPDATE retrieval.chunk SET embedding = NULL WHERE collection_id = $1 AND embedding IS NOT NULL
"""

_TAKE_MODEL = """
UPDATE retrieval.collection SET embedding_model = $2, dimension = $3 WHERE collection_id = $1
"""

_KNOWN = """
SELECT document_id, source, content_hash, recipe FROM retrieval.document
WHERE collection_id = $1 AND root = $2
"""

_PUT_DOCUMENT = """
INSERT INTO retrieval.document
    (collection_id, root, source, title, media_type, content_hash, recipe, text)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (collection_id, root, source) DO UPDATE SET
    title = excluded.title, media_type = excluded.media_type, content_hash = excluded.content_hash,
    recipe = excluded.recipe, text = excluded.text, indexed_at = now()
RETURNING document_id
"""

_PUT_CHUNK = """
INSERT INTO retrieval.chunk (document_id, ordinal, collection_id, chunk_id, start_offset, end_offset,
                             heading_path, heading, text, embedding)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::vector)
"""

_DROP_DOCUMENTS = "DELETE FROM retrieval.document WHERE document_id = ANY($1::bigint[])"

_COLLECTIONS = """
SELECT name, embedding_model, dimension,
       (SELECT count(*) FROM retrieval.document d WHERE d.collection_id = c.collection_id) AS documents,
       (SELECT count(*) FROM retrieval.chunk k WHERE k.collection_id = c.collection_id) AS chunks
FROM retrieval.collection c WHERE tenant = $1 ORDER BY name
"""
