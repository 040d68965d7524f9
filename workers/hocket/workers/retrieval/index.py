"""Fills collections: turns folders of files into documents and chunks in the schema `retrieval`.

Adding a folder again is cheap and safe: files with unchanged bytes and recipe are skipped, changed ones
are replaced, and documents whose file is gone are deleted. Each document is one transaction, so that a
search sees either its old or its new state, and an interrupted run continues where it stopped. An
advisory lock allows one run at a time per collection. Files that are there but cannot be read are
reported, and keep their former version. A run that the database interrupts deletes nothing.

All vectors of a collection are of one model. Another one takes its place only if that is asked for, and
only once it has given a vector; then every document is indexed again.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres import vector_indexes
from hocket.kit.postgres.database import DatabaseUnavailable, said
from hocket.kit.postgres.errors import AWAY, is_row_fault
from hocket.kit.postgres.vector_indexes import VectorIndexesNotBuilt
from hocket.schemas.checks.plain_json import shown_text
from hocket.workers.retrieval import chunking, extraction
from hocket.workers.retrieval.chunking import DEFAULT_SIZES, Chunk, Sizes
from hocket.workers.retrieval.collection_lock import LOCK_WAIT_MS, sole_writer
from hocket.workers.retrieval.deletion import MAX_ROWS, delete_documents, in_batches
from hocket.workers.retrieval.embedding import Embedder, as_literal, embedded
from hocket.workers.retrieval.errors import (
    CollectionDeleted,
    DocumentUnreadable,
    EmbedderMissing,
    FolderUnusable,
)
from hocket.workers.retrieval.extraction import Extracted
from hocket.workers.retrieval.folder_files import (
    MAX_NAME_BYTES,
    check_name,
    files_of,
    has_file,
    missing_folders,
    read,
)
from hocket.workers.retrieval.reader import Reader

MAX_REPORTED = 1_000
EMBED_BATCH = 64
WRITE_BATCH = 200
"""Chunks that one statement writes."""
STATEMENT_TIMEOUT_MS = 60_000
TRIED_TEXT = "text"
"""What a model gives a vector of before it takes the place of another."""

log = structlog.get_logger()


@dataclass
class IndexReport:
    """What one run did: its files by outcome. `unreadable` holds (source, reason), `missing_folders` the
    paths of other folders in the collection that are not on this machine, `dropped_model` the model
    whose vectors were dropped, and `vector_index` the reason why the collection's vector index is not
    as it should be, if it is not."""

    collection: str
    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unreadable_count: int = 0
    missing_folders: list[str] = field(default_factory=list)
    dropped_model: str = ""
    vector_index: str = ""


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
    stored_as: str | None = None,
    embedder: Embedder | None = None,
    replace_vectors: bool = False,
    sizes: Sizes = DEFAULT_SIZES,
    statement_timeout_ms: float = STATEMENT_TIMEOUT_MS,
    lock_wait_ms: float = LOCK_WAIT_MS,
) -> IndexReport:
    """Index the files of a folder and its subfolders for a tenant; documents whose file is gone are
    deleted. They are stored under the folder's path, or under `stored_as`. With `replace_vectors`,
    vectors of another model than the embedder's are dropped, or of any model if there is no embedder.

    The pool needs two connections, one of which holds the lock. Raises FolderUnusable, CollectionBusy,
    EmbeddingInvalid, EmbedderMissing (there are vectors of another model that are not to be dropped, or
    documents of other folders, which would lack them), CollectionDeleted, or DatabaseUnavailable.
    """
    path, files = await asyncio.to_thread(files_of, folder)
    root, timeout_s = stored_as or path, statement_timeout_ms / 1000
    report = IndexReport(collection)
    try:
        collection_id = await pool.fetchval(_ADD_COLLECTION, tenant, collection, timeout=timeout_s)
        async with sole_writer(pool, collection, collection_id, lock_wait_ms, timeout_s) as lock:
            run = _Run(pool, lock, root, report, collection_id, embedder, sizes, timeout_s)
            try:
                await run.index(path, files, replace_vectors)
            finally:
                run.close()
    except AWAY as error:
        done = report.added + report.replaced + report.unchanged + report.unreadable_count
        reason = (
            f"{said(error)}; {done} of {len(files)} files are done, and what was indexed stays: run "
            "the same command again, which continues there"
        )
        raise DatabaseUnavailable(reason=reason) from error
    return report


async def collections(
    pool: asyncpg.Pool, *, tenant: str, timeout_ms: float = STATEMENT_TIMEOUT_MS
) -> list[CollectionInfo]:
    """Return a tenant's collections, sorted by name."""
    rows = await pool.fetch(_COLLECTIONS, tenant, timeout=timeout_ms / 1000)
    return [CollectionInfo(**row) for row in rows]


# ---- one run --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    document_id: int
    content_hash: str
    recipe: str
    lacks_vectors: bool


class _Run:
    """One walk over a folder's files, with the collection's lock held."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        lock: Any,
        root: str,
        report: IndexReport,
        collection_id: int,
        embedder: Embedder | None,
        sizes: Sizes,
        timeout_s: float,
    ) -> None:
        self._pool = pool
        self._lock = lock
        self._root = root
        self._collection_id = collection_id
        self._embedder = embedder
        self._sizes = sizes
        self._timeout_s = timeout_s
        self._dimension: int | None = None
        self._report = report
        self._reader = Reader()
        model = embedder.model if embedder is not None else ""
        self._recipe = (
            f"extraction={extraction.VERSION} chunking={chunking.VERSION} "
            f"sizes={sizes.max_chars}/{sizes.overlap_chars}/{sizes.join_chars} model={model}"
        )

    async def index(self, folder: str, files: Sequence[str], replace_vectors: bool) -> None:
        known = await self._known()
        if known and not await asyncio.to_thread(has_file, folder, files):
            raise _without_files(self._report.collection, self._root, len(known), bool(files))
        is_changed = await self._changes_model(replace_vectors)
        if is_changed:
            known = await self._known()
        await self._drop_unfit_index(is_changed)
        places = set(known).union(*map(_folders_of, known))
        unread = set[str]()
        for source in files:
            try:
                await self._index_file(folder, source, known.get(source))
            except DocumentUnreadable as error:
                self._note_unreadable(source, error, is_known=source in places)
                unread.add(source)
        there = set(files)
        gone = [
            was.document_id
            for source, was in known.items()
            # a folder that has become a link which cannot be followed keeps its documents
            if source not in there and unread.isdisjoint(_folders_of(source))
        ]
        # on the connection with the lock: if that is lost, nothing is deleted
        await delete_documents(self._lock, gone, self._timeout_s)
        self._report.removed = len(gone)
        await self._repair_index()
        await self._note_missing_folders()

    def close(self) -> None:
        """End the process that reads documents."""
        self._reader.close()

    async def _changes_model(self, replace_vectors: bool) -> bool:
        """Make our model the collection's; tell whether it was another. Raises EmbedderMissing."""
        row = await self._pool.fetchrow(
            _MODEL_OF, self._collection_id, self._root, timeout=self._timeout_s
        )
        if row is None:
            raise CollectionDeleted(collection=self._report.collection)
        model = self._embedder.model if self._embedder is not None else ""
        self._dimension = row["dimension"]
        if row["embedding_model"] == model:
            return False
        if row["has_others"] or (row["embedding_model"] and not replace_vectors):
            raise EmbedderMissing(
                collection=self._report.collection,
                model=row["embedding_model"] or "none",
                given=model or "none",
            )
        await self._change_model(self._embedder)
        self._report.dropped_model = row["embedding_model"]
        return True

    async def _change_model(self, embedder: Embedder | None) -> None:
        """Forget all vectors once a new model has given one. Documents lose their recipe with their
        vectors, so that they are indexed again, by whatever run comes next."""
        dimension = None
        if embedder is not None:
            dimension = len((await embedded(embedder, [TRIED_TEXT], None))[0])
        async with self._pool.acquire() as connection, connection.transaction():
            for statement in (_FORGET_VECTORS, _FORGET_RECIPES):
                await in_batches(connection, statement, self._collection_id, self._timeout_s)
            await connection.execute(
                _TAKE_MODEL,
                self._collection_id,
                embedder.model if embedder is not None else "",
                dimension,
                timeout=self._timeout_s,
            )
        self._dimension = dimension

    async def _drop_unfit_index(self, is_changed: bool) -> None:
        """Drop the vector index of the model before, which an interrupted run may have left, too: one of
        another dimension would refuse the vectors."""
        is_unfit = await self._lock.fetchval(
            _UNFIT_INDEX, self._collection_id, self._dimension, is_changed, timeout=self._timeout_s
        )
        if is_unfit:
            await vector_indexes.drop(self._lock, self._collection_id)

    async def _known(self) -> dict[str, _Known]:
        rows = await self._pool.fetch(
            _KNOWN, self._collection_id, self._root, timeout=self._timeout_s
        )
        return {
            row["source"]: _Known(
                row["document_id"], row["content_hash"], row["recipe"], row["lacks_vectors"]
            )
            for row in rows
        }

    async def _index_file(self, folder: str, source: str, known: _Known | None) -> None:
        check_name(self._root, source)
        data = await asyncio.to_thread(read, folder, source)
        content_hash = hashlib.sha256(data).hexdigest()
        if known and self._is_unchanged(known, content_hash):
            self._report.unchanged += 1
            return
        document, pieces = await self._reader.cut(data, source, self._sizes)
        vectors = await self._vectors(pieces, known)
        await self._write(source, content_hash, document, pieces, vectors)
        self._report.chunks += len(pieces)
        if known:
            self._report.replaced += 1
        else:
            self._report.added += 1

    def _is_unchanged(self, known: _Known, content_hash: str) -> bool:
        is_whole = self._embedder is None or not known.lacks_vectors
        return is_whole and (known.content_hash, known.recipe) == (content_hash, self._recipe)

    async def _vectors(self, pieces: Sequence[Chunk], known: _Known | None) -> list[str | None]:
        """Return the vectors of pieces. Those that the document has already are not paid for again."""
        if self._embedder is None:
            return [None] * len(pieces)
        texts = [_searched(piece) for piece in pieces]
        literals = await self._kept_vectors(known) if known else {}
        new = list(dict.fromkeys(text for text in texts if text not in literals))
        for first in range(0, len(new), EMBED_BATCH):
            batch = new[first : first + EMBED_BATCH]
            vectors = await embedded(self._embedder, batch, self._dimension)
            literals.update(zip(batch, map(as_literal, vectors), strict=True))
        return [literals[text] for text in texts]

    async def _kept_vectors(self, known: _Known) -> dict[str, str]:
        rows = await self._pool.fetch(_VECTORS, known.document_id, timeout=self._timeout_s)
        return {_text_searched(row["heading"], row["text"]): row["vector"] for row in rows}

    async def _write(
        self,
        source: str,
        content_hash: str,
        document: Extracted,
        pieces: Sequence[Chunk],
        vectors: Sequence[str | None],
    ) -> None:
        async with (
            _refused_as_unreadable(source, self._report.collection),
            self._pool.acquire() as connection,
            connection.transaction(),
        ):
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
            for first in range(0, len(rows), WRITE_BATCH):
                batch = rows[first : first + WRITE_BATCH]
                await connection.executemany(_PUT_CHUNK, batch, timeout=self._timeout_s)

    async def _repair_index(self) -> None:
        """Build the collection's vector index if it is missing; if that fails, report why: searches work
        without it."""
        try:
            await vector_indexes.repair(self._lock, collection_id=self._collection_id)
        except VectorIndexesNotBuilt as error:
            self._report.vector_index = str(error.fields["reason"])

    async def _note_missing_folders(self) -> None:
        rows = await self._pool.fetch(
            _OTHER_ROOTS, self._collection_id, self._root, timeout=self._timeout_s
        )
        roots = [row["root"] for row in rows]
        self._report.missing_folders = await asyncio.to_thread(missing_folders, roots)

    def _note_unreadable(self, source: str, error: DocumentUnreadable, *, is_known: bool) -> None:
        reason = str(error.fields["reason"])
        if is_known:
            reason += "; its former version stays in the collection"
        shown = shown_text(source, MAX_NAME_BYTES)
        log.warning("document_unreadable", source=shown, reason=reason)
        self._report.unreadable_count += 1
        if len(self._report.unreadable) < MAX_REPORTED:
            self._report.unreadable.append((shown, reason))


@asynccontextmanager
async def _refused_as_unreadable(source: str, collection: str) -> AsyncIterator[None]:
    """Raise DocumentUnreadable for a document that Postgres refuses because of what is in it, and
    CollectionDeleted; say which document was being written if a statement takes too long."""
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"no answer in time while `{source}` was written") from error
    except asyncpg.ForeignKeyViolationError as error:
        raise CollectionDeleted(collection=collection) from error
    except Exception as error:
        if not is_row_fault(error):
            raise
        raise DocumentUnreadable(
            source=source, reason=f"Postgres refuses it: {said(error)}"
        ) from error


def _without_files(collection: str, root: str, documents: int, has_links: bool) -> FolderUnusable:
    """Return the error for a folder of documents where no file is left, such as a disk that is not
    mounted."""
    of_it = "1 document" if documents == 1 else f"{documents} documents"
    reason = (
        f"it has {'only links that cannot be followed' if has_links else 'no files'}, but the "
        f"collection has {of_it} of it. To delete them: "
        f"`hocket index delete {collection} --folder {root}`"
    )
    return FolderUnusable(folder=root, reason=reason)


def _folders_of(source: str) -> set[str]:
    """Return the folders that a document is in, as paths in the indexed folder."""
    return {str(folder) for folder in PurePosixPath(source).parents}


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
    return _text_searched(_heading(piece), piece.text)


def _text_searched(heading: str, text: str) -> str:
    return f"{heading}\n{text}"


# ---- statements -----------------------------------------------------------------------------


# An update that changes nothing returns the row, even one that was added since this statement began.
_ADD_COLLECTION = """
INSERT INTO retrieval.collection (tenant, name) VALUES ($1, $2)
ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name
RETURNING collection_id
"""

_MODEL_OF = """
SELECT embedding_model, dimension,
       EXISTS (SELECT FROM retrieval.document d
               WHERE d.collection_id = c.collection_id AND d.root <> $2) AS has_others
FROM retrieval.collection c WHERE collection_id = $1
"""

_FORGET_VECTORS = f"""
UPDATE retrieval.chunk SET embedding = NULL WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM retrieval.chunk WHERE collection_id = $1 AND embedding IS NOT NULL
    LIMIT {MAX_ROWS}
))
"""

_FORGET_RECIPES = f"""
UPDATE retrieval.document SET recipe = '' WHERE document_id = ANY (ARRAY(
    SELECT document_id FROM retrieval.document WHERE collection_id = $1 AND recipe <> ''
    LIMIT {MAX_ROWS}
))
"""

_TAKE_MODEL = """
UPDATE retrieval.collection SET embedding_model = $2, dimension = $3 WHERE collection_id = $1
"""

_UNFIT_INDEX = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_indexes
               WHERE schemaname = 'retrieval' AND indexname = 'chunk_embedding_' || $1::bigint
                 AND ($3::boolean OR position('vector(' || $2::int || ')' IN indexdef) = 0))
"""

_KNOWN = """
SELECT document_id, source, content_hash, recipe,
       EXISTS (SELECT FROM retrieval.chunk k
               WHERE k.document_id = d.document_id AND k.ordinal = 0 AND k.embedding IS NULL)
       AS lacks_vectors
FROM retrieval.document d WHERE collection_id = $1 AND root = $2
"""
"""The chunks of a document have vectors all or none: each is written and forgotten as a whole."""

_VECTORS = """
SELECT heading, text, embedding::text AS vector FROM retrieval.chunk
WHERE document_id = $1 AND embedding IS NOT NULL
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

_OTHER_ROOTS = """
SELECT DISTINCT root FROM retrieval.document WHERE collection_id = $1 AND root <> $2 ORDER BY root
"""

_COLLECTIONS = """
SELECT name, embedding_model, dimension,
       (SELECT count(*) FROM retrieval.document d WHERE d.collection_id = c.collection_id) AS documents,
       (SELECT count(*) FROM retrieval.chunk k WHERE k.collection_id = c.collection_id) AS chunks
FROM retrieval.collection c WHERE tenant = $1 ORDER BY name
"""
