"""The vector indexes of collections: one partial HNSW index on `retrieval.chunk` for each with vectors.

They are made as collections are filled, so that neither the schema nor a backup has them. `repair`
builds what is missing and drops what is left of other dimensions, of interrupted builds and of deleted
collections. It works beside writers (CONCURRENTLY), which may take long: it waits for transactions that
began before it. A search without its index compares every vector: it finds the same, but takes longer.

Of two builds on a table at the same time, each could wait for the other, so that a lock allows one.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres.advisory_lock import lock_taken
from hocket.kit.postgres.database import said
from hocket.kit.postgres.session_cleanup import given_up
from hocket.schemas.errors import ErrorClass, HocketError

MAX_INDEXED_DIMENSION = 2_000
"""The most dimensions of an HNSW index of pgvector; beyond that, every vector is compared."""
BUILD_LIMIT_S = 3_600.0
"""How long `repair` may take, with its wait for others."""
STATEMENT_TIMEOUT_S = 60.0
SAY_EVERY_S = 10.0
COLLECTION_LOCK = 7_306_412
"""The first key of the advisory lock of who fills a collection; the second is the collection's id."""
BUILDER_LOCK = 7_306_413
"""The first key of the advisory lock of who builds or drops vector indexes; the second is 0."""
_BUILDER = (BUILDER_LOCK, 0)

_FAULTS = f"""
WITH wanted AS (
    SELECT collection_id, tenant, name, dimension FROM retrieval.collection
    WHERE dimension <= {MAX_INDEXED_DIMENSION}
), made AS (
    SELECT i.relname AS index, substring(i.relname FROM '[0-9]+$')::bigint AS collection_id,
           x.indisvalid, pg_catalog.pg_get_indexdef(i.oid) AS definition
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
    WHERE x.indrelid = 'retrieval.chunk'::regclass AND i.relname ~ '^chunk_embedding_[0-9]{{1,18}}$'
)
SELECT collection_id, w.tenant, w.name, w.dimension, m.index
FROM wanted w FULL JOIN made m USING (collection_id)
WHERE (w.name IS NULL OR m.index IS NULL OR NOT m.indisvalid
       OR position('vector(' || w.dimension || ')' IN m.definition) = 0)
  AND ($1::bigint IS NULL OR collection_id = $1)
  AND NOT ($2::boolean AND EXISTS (
      SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
      WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()
        AND (l.classid = {BUILDER_LOCK}
             OR l.classid = {COLLECTION_LOCK} AND l.objid::bigint = collection_id % 2147483648)))
ORDER BY collection_id
"""
"""The indexes that are missing, unusable or left over; with $2, only those that nobody works on."""

log = structlog.get_logger(__name__)


class VectorIndexesNotBuilt(HocketError):
    """Vector indexes are not as they should be: {reason}. Until they are, searches of these collections
    compare every vector: they find the same, but take longer. Run `hocket index repair`."""

    code = "vector_indexes_not_built"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


@dataclass(frozen=True, slots=True)
class Fault:
    """An index that is missing or unusable, or is left over. `tenant`, `name` and `dimension` are those
    of the collection that needs it, None if none does; `index` is the one to drop, None if none is
    there."""

    collection_id: int
    tenant: str | None
    name: str | None
    dimension: int | None
    index: str | None

    def __str__(self) -> str:
        return str(self.index) if self.name is None else f"{self.name} (tenant {self.tenant})"


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair` built and dropped."""

    built: Sequence[Fault] = ()
    dropped: Sequence[Fault] = ()


async def faults(
    connection: Any,
    *,
    collection_id: int | None = None,
    unattended: bool = False,
    timeout_s: float = STATEMENT_TIMEOUT_S,
) -> list[Fault]:
    """Return what `repair` would do, for all collections or one; with `unattended`, only what nobody is
    working on."""
    rows = await connection.fetch(_FAULTS, collection_id, unattended, timeout=timeout_s)
    return [Fault(**row) for row in rows]


async def repair(
    connection: Any,
    *,
    collection_id: int | None = None,
    only_left_over: bool = False,
    limit_s: float = BUILD_LIMIT_S,
) -> Repaired:
    """Build the missing indexes and drop what is left over, of all collections or one; with
    `only_left_over`, build none. The connection must not be in a transaction. Raises
    VectorIndexesNotBuilt, or what the connection raises once it is lost."""
    if not _todo(await faults(connection, collection_id=collection_id), only_left_over):
        return Repaired()
    deadline = asyncio.get_running_loop().time() + limit_s
    built, dropped, failed = list[Fault](), list[Fault](), list[str]()
    async with _sole_builder(connection, deadline, limit_s):
        found = await faults(connection, collection_id=collection_id)
        for fault in _todo(found, only_left_over):
            if reason := await _failure(connection, fault, deadline, limit_s):
                failed.append(reason)
            else:
                (dropped if fault.dimension is None else built).append(fault)
    if failed:
        raise VectorIndexesNotBuilt(reason="; ".join(failed))
    return Repaired(built, dropped)


async def drop(connection: Any, collection_id: int, *, limit_s: float = BUILD_LIMIT_S) -> None:
    """Drop the index of a collection whose vectors are replaced by those of another model; `repair`
    builds it again. Raises as `repair` does."""
    deadline = asyncio.get_running_loop().time() + limit_s
    fault = Fault(collection_id, None, None, None, f"chunk_embedding_{collection_id:d}")
    async with _sole_builder(connection, deadline, limit_s):
        reason = await _failure(connection, fault, deadline, limit_s)
    if reason:
        raise VectorIndexesNotBuilt(reason=reason)


async def _failure(connection: Any, fault: Fault, deadline: float, limit_s: float) -> str:
    """Replace an index, and return why that failed; nothing if it did not. Raises what the connection
    raises once it is lost."""
    try:
        await _replace(connection, fault, deadline)
    except asyncpg.PostgresConnectionError:
        raise
    except TimeoutError:
        return f"{fault}: it takes longer than {limit_s:g} s"
    except asyncpg.PostgresError as error:
        return f"{fault}: {said(error)}"
    return ""


def _todo(found: Sequence[Fault], only_left_over: bool) -> list[Fault]:
    return [fault for fault in found if fault.dimension is None or not only_left_over]


async def _replace(connection: Any, fault: Fault, deadline: float) -> None:
    """Drop the index of a fault, if there is one, and build the one that is needed, if one is."""
    if fault.index is not None:
        drop = f"DROP INDEX CONCURRENTLY IF EXISTS retrieval.{fault.index}"
        await _patiently(connection, drop, fault, deadline)
    if fault.dimension is not None:
        # a constant predicate and type, so that one table can hold vectors of every dimension
        build = (
            f"CREATE INDEX CONCURRENTLY chunk_embedding_{fault.collection_id:d}"
            f" ON retrieval.chunk USING hnsw"
            f" ((embedding::vector({fault.dimension:d})) vector_cosine_ops)"
            f" WHERE collection_id = {fault.collection_id:d}"
        )
        await _patiently(connection, build, fault, deadline)


async def _patiently(connection: Any, statement: str, fault: Fault, deadline: float) -> None:
    """Run a statement until the deadline, and log every SAY_EVERY_S that it is not done yet. Raises
    TimeoutError; a build that is given up leaves an unusable index, which `repair` drops."""
    left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
    running = asyncio.ensure_future(connection.execute(statement, timeout=left_s))
    try:
        while not (await asyncio.wait({running}, timeout=SAY_EVERY_S))[0]:
            log.warning("vector_index_takes_long", collection=str(fault))
    finally:
        running.cancel()
    await running


@asynccontextmanager
async def _sole_builder(connection: Any, deadline: float, limit_s: float) -> AsyncIterator[None]:
    """Hold the builders' lock, in a session without time limits of its own."""
    undo = ("RESET statement_timeout", "RESET lock_timeout")
    unlock = "SELECT pg_advisory_unlock({}::int, {}::int)".format(*_BUILDER)
    async with given_up(connection, *undo, unlock, timeout_s=STATEMENT_TIMEOUT_S):
        for name in ("statement_timeout", "lock_timeout"):
            await connection.execute(f"SET {name} = 0", timeout=STATEMENT_TIMEOUT_S)
        if not await lock_taken(connection, _BUILDER, deadline, timeout_s=STATEMENT_TIMEOUT_S):
            reason = f"another process has worked on others for {limit_s:g} s"
            raise VectorIndexesNotBuilt(reason=reason)
        yield
