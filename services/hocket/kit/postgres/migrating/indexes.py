"""Indexes that are built beside writers: outside of the revision's transaction, before it begins.

A revision names them in `indexes`, as whole statements (`CREATE INDEX CONCURRENTLY name ON hocket.table
...`). An index that is there and valid is left as it is; what an interrupted build left is removed
first. In an empty database they are built in the transaction, because nobody writes there.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from hocket.kit.postgres.migrating.holders import Holders

SAY_EVERY_S = 10.0
_STATEMENT = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON hocket\.(\w+)\b")
_IS_VALID = "SELECT indisvalid FROM pg_catalog.pg_index WHERE indexrelid = to_regclass('{name}')"
_IS_PARENT = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = to_regclass('hocket.{table}'))
"""

log = structlog.get_logger(__name__)


def indexes_of(module: Any) -> Sequence[str]:
    """Return the statements of the indexes that the module of a revision names. Raises ValueError if
    one does not begin as they must."""
    statements: Sequence[str] = getattr(module, "indexes", ())
    for statement in statements:
        _names(statement)
    return statements


async def build_concurrently(
    database_url: str, statements: Sequence[str], connect: Callable[[], Awaitable[Any]]
) -> None:
    """Build indexes while others write, one after the other, on a connection of its own. Raises what
    Postgres raises, and ValueError for a table with children, which must be indexed one by one."""
    connection = await connect()
    try:
        pid = await connection.fetchval("SELECT pg_catalog.pg_backend_pid()")
        for statement in statements:
            name, table = _names(statement)
            if await connection.fetchval(_IS_PARENT.format(table=table)):
                raise ValueError(f"hocket.{table} has children: no index is built beside writers")
            is_valid = await connection.fetchval(_IS_VALID.format(name=name))
            if is_valid:
                continue
            if is_valid is False:
                await connection.execute(f"DROP INDEX CONCURRENTLY {name}")
            await _built(connection, statement, name, Holders(), database_url, pid)
    finally:
        connection.terminate()


async def _built(
    connection: Any, statement: str, name: str, holders: Holders, database_url: str, pid: int
) -> None:
    """Build one, and say every SAY_EVERY_S which transactions it waits for: those that began before it.
    Writers do not wait for it."""
    async with holders.watching(database_url, pid):
        building = asyncio.ensure_future(connection.execute(statement))
        try:
            while not (await asyncio.wait({building}, timeout=SAY_EVERY_S))[0]:
                log.warning("index_being_built", index=name, waits_for=str(holders) or None)
        finally:
            building.cancel()
        await building
    log.info("index_built", index=name)


def build_missing(connection: Any, module: Any) -> None:
    """Build the indexes of a revision that are not there yet, in the transaction of a connection of
    SQLAlchemy: those of an empty database."""
    from sqlalchemy import text

    for statement in indexes_of(module):
        name, _ = _names(statement)
        if connection.execute(text(_IS_VALID.format(name=name))).scalar() is None:
            connection.exec_driver_sql(statement.replace(" CONCURRENTLY ", " ", 1))


def _names(statement: str) -> tuple[str, str]:
    """Return the names of the index, with its schema, and of its table."""
    found = _STATEMENT.match(statement)
    if found is None:
        raise ValueError(f"not `CREATE INDEX CONCURRENTLY name ON hocket.table`: {statement}")
    return f"hocket.{found[1]}", found[2]
