"""Hybrid search over a collection: full text and, if there are vectors, meaning; the ranks are fused.

Three rankings per query: `text` (all words of the query, `websearch_to_tsquery`, by `ts_rank_cd`; only
of a query of up to TEXT_RANKED_CHARS), `words` (any of its words, weighted by their rarity in the
collection) and `vector` (cosine distance).
The result is empty if nothing is found; an unknown collection raises CollectionUnknown. Read-only.

What a search may cost is bounded: the rarest RANKED_WORDS of a query rank chunks, all statements
together take at most MAX_SEARCH_MS, and a tenant's searches hold at most half of the connections.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from hocket.schemas.errors import InvalidInput
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.embedding import (
    MAX_INDEXED_DIMENSION,
    Embedder,
    as_literal,
    embedded,
)
from hocket.workers.retrieval.errors import CollectionUnknown, EmbedderMissing, SearchTimeout
from hocket.workers.retrieval.fusion import Fused, fuse

MAX_QUERIES: Final = 16
MAX_QUERY_CHARS: Final = 10_000
TEXT_RANKED_CHARS: Final = 2_000
"""A longer query has no ranking `text`: hardly a chunk has all its words, and one that does, because
they are the same few again and again, takes minutes to rank."""
MAX_WORDS: Final = 64
"""Different words of a query whose rarity is looked up: the longest, which are rare more often."""
RANKED_WORDS: Final = 24
"""The rarest of them, which select and rank chunks. Each one costs time for every chunk that it, or any
other of them, occurs in."""
MIN_CANDIDATES: Final = 40
MAX_CANDIDATES: Final = 800
EF_SEARCH_LIMIT: Final = 1_000
MAX_SEARCH_MS: Final = 60_000.0
"""The limit for the statements of one search, however much time its step has."""

_WHOLE_WORDS = re.compile(rf".{{1,{MAX_QUERY_CHARS}}}(?!\S)", re.DOTALL)

_Key = tuple[int, int]
"""(document_id, ordinal) of a chunk."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that was found. `start` and `end` are offsets into the extracted text of the document
    `source` (a path in the indexed folder `root`); `ranks` holds its rank in each ranking."""

    id: str
    text: str
    source: str
    root: str
    title: str
    heading_path: tuple[str, ...]
    start: int
    end: int
    score: float
    ranks: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the passage in the form of a retrieval node's output."""
        return {
            "id": self.id,
            "text": self.text,
            "source": self.source,
            "uri": f"file://{self.root}/{self.source}",
            "title": self.title,
            "heading_path": list(self.heading_path),
            "start": self.start,
            "end": self.end,
            "score": round(self.score, 6),
            "ranks": self.ranks,
        }


async def search(
    connections: IndexConnections,
    collection: str,
    queries: Sequence[str],
    *,
    tenant: str,
    top_k: int,
    timeout_ms: float,
    embedder: Embedder | None = None,
) -> list[Passage]:
    """Return the `top_k` best chunks of a tenant's collection for one or more queries, best first.

    Blank queries are left out. `timeout_ms` is for the whole search. Raises InvalidInput (see
    `check_queries`), CollectionUnknown, EmbedderMissing (the stored vectors are of another model),
    IndexBusy (no connection became free) or SearchTimeout.
    """
    asked = [query.strip() for query in queries if query.strip()]
    if asked:
        check_queries(asked, "query")
    wanted = min(max(4 * top_k, MIN_CANDIDATES), MAX_CANDIDATES)
    ends_at_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    async with _connected(connections, tenant, ends_at_s) as connection:
        row = await connection.fetchrow(_COLLECTION, tenant, collection)
    if row is None:
        raise CollectionUnknown(collection=collection)
    vectors = await _query_vectors(collection, row, embedder, asked)
    async with (
        _connected(connections, tenant, ends_at_s) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.execute(_STOP_STATEMENTS)
        rankings = await _rankings(connection, row, asked, vectors, wanted)
        best = fuse(rankings)[:top_k]
        keys = [one.item for one in best]
        rows = await connection.fetch(_PASSAGES, [key[0] for key in keys], [key[1] for key in keys])
    return [_passage(one, found) for one, found in zip(best, rows, strict=True)]


def check_queries(queries: Sequence[str], field: str) -> None:
    """Raise InvalidInput, naming the field, if there is no query, there are too many, or one is too
    long."""
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise InvalidInput(
            field=field,
            reason=f"it has {len(queries)} queries",
            cure=f"Use 1 to {MAX_QUERIES}.",
        )
    longest = max(map(len, queries))
    if longest > MAX_QUERY_CHARS:
        raise InvalidInput(
            field=field,
            reason=f"a query has {longest:,} characters",
            cure=f"Use up to {MAX_QUERY_CHARS:,}: only the question, without what surrounds it.",
        )


def as_query(text: str) -> str:
    """Return a text without the words at its end that are beyond MAX_QUERY_CHARS."""
    whole = _WHOLE_WORDS.match(text.strip())
    return whole.group().rstrip() if whole else text.strip()[:MAX_QUERY_CHARS]


async def embedding_model(
    connections: IndexConnections, collection: str, *, tenant: str, timeout_ms: float
) -> str:
    """Return the model of a collection's vectors; empty if it has none, or there is no such collection.
    Raises IndexBusy or SearchTimeout."""
    ends_at_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    async with _connected(connections, tenant, ends_at_s) as connection:
        row = await connection.fetchrow(_COLLECTION, tenant, collection)
    return "" if row is None or row["dimension"] is None else str(row["embedding_model"])


@asynccontextmanager
async def _connected(
    connections: IndexConnections, tenant: str, ends_at_s: float
) -> AsyncIterator[Any]:
    """Hold a connection for a block whose statements together have the time that is left, but at most
    MAX_SEARCH_MS."""
    loop = asyncio.get_running_loop()
    asked_at_s = loop.time()
    timeout_s = max(ends_at_s - asked_at_s, 0.0)
    async with connections.connection(tenant, timeout_s=timeout_s) as connection:
        waited_s = loop.time() - asked_at_s
        left_s = max(min(timeout_s - waited_s, MAX_SEARCH_MS / 1000), 0.001)
        try:
            async with asyncio.timeout(left_s):
                yield connection
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            raise SearchTimeout(
                timeout_ms=round(left_s * 1000),
                waited_ms=round(waited_s * 1000),
                max_ms=round(MAX_SEARCH_MS),
            ) from error


async def _rankings(
    connection: Any,
    row: asyncpg.Record,
    asked: Sequence[str],
    vectors: Sequence[Sequence[float]],
    wanted: int,
) -> dict[str, list[_Key]]:
    """Return the chunks that each query finds in each way, best first."""
    rankings: dict[str, list[_Key]] = {}
    for number, query in enumerate(asked):
        words = (row["collection_id"], query, wanted)
        suffix = f"#{number + 1}" if len(asked) > 1 else ""
        if len(query) <= TEXT_RANKED_CHARS:
            rankings["text" + suffix] = _keys(await connection.fetch(_ALL_WORDS, *words))
        rankings["words" + suffix] = _keys(await connection.fetch(_ANY_WORD, *words))
        if vectors:
            rankings["vector" + suffix] = await _nearest(connection, row, vectors[number], wanted)
    return rankings


async def document_text(
    pool: asyncpg.Pool, collection: str, source: str, *, tenant: str, timeout_ms: float
) -> str | None:
    """Return the extracted text of a source, to which offsets refer; None if it is not indexed."""
    text: str | None = await pool.fetchval(
        _TEXT, tenant, collection, source, timeout=timeout_ms / 1000
    )
    return text


async def _query_vectors(
    collection: str, row: asyncpg.Record, embedder: Embedder | None, asked: Sequence[str]
) -> list[list[float]]:
    if embedder is None or row["dimension"] is None or not asked:
        return []
    if row["embedding_model"] != embedder.model:
        raise EmbedderMissing(
            collection=collection, model=row["embedding_model"], given=embedder.model
        )
    return await embedded(embedder, asked, row["dimension"])


async def _nearest(
    connection: Any, row: asyncpg.Record, vector: Sequence[float], wanted: int
) -> list[_Key]:
    """Rank by cosine distance, with the same constants in the statement as in the collection's index."""
    dimension, collection_id = row["dimension"], row["collection_id"]
    kind = f"vector({dimension:d})" if dimension <= MAX_INDEXED_DIMENSION else "vector"
    if dimension <= MAX_INDEXED_DIMENSION:
        await connection.execute(
            f"SET LOCAL hnsw.ef_search = {min(max(wanted, 40), EF_SEARCH_LIMIT):d}"
        )
    found = await connection.fetch(
        f"SELECT document_id, ordinal FROM retrieval.chunk"
        f" WHERE collection_id = {collection_id:d} AND embedding IS NOT NULL"
        f" ORDER BY embedding::{kind} <=> $1::text::{kind} LIMIT $2",
        as_literal(vector),
        wanted,
    )
    return _keys(found)


def _keys(rows: Sequence[asyncpg.Record]) -> list[_Key]:
    return [(row["document_id"], row["ordinal"]) for row in rows]


def _passage(fused: Fused[_Key], row: asyncpg.Record) -> Passage:
    return Passage(
        id=row["chunk_id"],
        text=row["text"],
        source=row["source"],
        root=row["root"],
        title=row["title"],
        heading_path=tuple(row["heading_path"]),
        start=row["start_offset"],
        end=row["end_offset"],
        score=fused.score,
        ranks=dict(fused.ranks),
    )


_COLLECTION = """
SELECT collection_id, embedding_model, dimension FROM retrieval.collection
WHERE tenant = $1 AND name = $2
"""

_STOP_STATEMENTS = f"SET LOCAL statement_timeout = {MAX_SEARCH_MS:.0f}"
"""Postgres stops a statement by itself if this process was killed."""

_ALL_WORDS = """
SELECT k.document_id, k.ordinal
FROM retrieval.chunk k JOIN retrieval.document d USING (document_id),
     websearch_to_tsquery('english', $2) AS query
WHERE k.collection_id = $1 AND k.search @@ query
ORDER BY ts_rank_cd(k.search, query, 1) DESC, d.source, k.ordinal
LIMIT $3
"""

_ANY_WORD = f"""
WITH word AS MATERIALIZED (
    SELECT query, ln(1 + (total - chunks + 0.5) / (chunks + 0.5)) AS weight, chunks <= total / 2 AS rare
    FROM (
        SELECT lexeme, quote_literal(lexeme)::tsquery AS query
        FROM unnest(to_tsvector('english', $2)) ORDER BY length(lexeme) DESC, lexeme LIMIT {MAX_WORDS}
    ) AS lexemes,
    LATERAL (
        SELECT count(*) AS chunks FROM retrieval.chunk k
        WHERE k.collection_id = $1 AND k.search @@ lexemes.query
    ) AS frequency,
    (SELECT count(*) AS total FROM retrieval.chunk WHERE collection_id = $1) AS size
    WHERE chunks > 0
    ORDER BY chunks, lexeme LIMIT {RANKED_WORDS}
), selected AS (
    SELECT string_agg('(' || query::text || ')', ' | ')::tsquery AS query FROM word
    WHERE rare OR NOT EXISTS (SELECT FROM word WHERE rare)
)
SELECT k.document_id, k.ordinal
FROM selected, retrieval.chunk k JOIN retrieval.document d USING (document_id),
LATERAL (SELECT k.search || ''::tsvector AS search OFFSET 0) AS whole,
LATERAL (SELECT sum(weight * ts_rank(whole.search, word.query, 1)) AS score FROM word) AS ranked
WHERE k.collection_id = $1 AND k.search @@ selected.query
ORDER BY score DESC, d.source, k.ordinal
LIMIT $3
"""
"""`whole` has the vector unpacked, once for all words; OFFSET 0 keeps the planner from merging it into
`ranked`, where each word would unpack it again."""

_PASSAGES = """
SELECT k.chunk_id, k.text, k.start_offset, k.end_offset, k.heading_path, d.source, d.root, d.title
FROM unnest($1::bigint[], $2::int[]) WITH ORDINALITY AS wanted (document_id, ordinal, place)
JOIN retrieval.chunk k USING (document_id, ordinal)
JOIN retrieval.document d USING (document_id)
ORDER BY place
"""

_TEXT = """
SELECT d.text FROM retrieval.document d JOIN retrieval.collection c USING (collection_id)
WHERE c.tenant = $1 AND c.name = $2 AND d.source = $3 ORDER BY d.root LIMIT 1
"""
