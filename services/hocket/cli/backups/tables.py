"""Copies the Postgres tables in one snapshot, and restores them into a schema of the same release, with
their former partitions and tables of steps by day (decision 0025).

A partition that the ledger has detached to drop it is copied, too: after the restore, the next ledger
notes its days and drops it, as it does when another was killed meanwhile."""

# ruff: noqa: ASYNC240  # nothing else runs in this loop

import re
from pathlib import Path
from typing import Any

import asyncpg

from hocket.cli.backups.errors import PartitionsLeft, TablesUnknown
from hocket.cli.backups.known_tables import KNOWN
from hocket.cli.terminal.errors import SchemaMissing
from hocket.kit.postgres import migrations

SCHEMAS = ("hocket", "retrieval")
COPY_TIMEOUT_S = 3_600.0
LOCK_TIMEOUT_S = 60.0
"""For how long the tables may be locked by others, such as a migration."""
_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.relkind = 'p' AS partitioned,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               AND a.attgenerated = '' ORDER BY a.attnum) AS columns,
       ARRAY(SELECT format('%s.%s', rn.nspname, r.relname)
             FROM pg_constraint k JOIN pg_class r ON r.oid = k.confrelid
             JOIN pg_namespace rn ON rn.oid = r.relnamespace
             WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid <> c.oid) AS needs
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY ($1) AND c.relkind IN ('r', 'p')
  AND (NOT c.relispartition
       OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhdetachpending))
ORDER BY 1, 2
"""
_REVISION = f"SELECT version_num FROM {migrations.REVISIONS}"
_PARTITIONS = """
SELECT format('%s.%s', pn.nspname, p.relname) AS parent, n.nspname AS schema, c.relname AS name,
       pg_get_expr(c.relpartbound, c.oid) AS bound
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE pn.nspname = ANY ($1) AND c.relkind = 'r' AND c.relispartition AND NOT i.inhdetachpending
ORDER BY 1, 3
"""
_STEP_DAYS = """
SELECT suffix, from_at::text, to_at::text FROM hocket.step_days WHERE suffix <> '' ORDER BY from_at
"""
_MAKE_STEP_DAYS = """
SELECT hocket.make_step_days(to_date($1, 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC',
                             $2::text::timestamptz)
"""
"""From the day in their names: some begin later (migration 0070); `step_days` itself is copied, too."""
_BOUND = re.compile(
    r"FOR VALUES FROM \((MINVALUE|'[\d :.+-]+')\) TO \((MAXVALUE|'[\d :.+-]+')\)|DEFAULT"
)
_TIME = re.compile(r"[\d :.+-]+|-?infinity")
_DETACHED = re.compile(r"(\w+)_(?:\d{8}(?:\d{4})?|before)")
"""The name of a partition, and in it that of its parent."""
_SEQUENCES = """
SELECT format('%I.%I', schemaname, sequencename) AS name, last_value FROM pg_sequences
WHERE schemaname = ANY ($1) AND last_value IS NOT NULL
"""


async def check(connection: asyncpg.Connection) -> None:
    """Raise SchemaMissing, PartitionsLeft or TablesUnknown if a backup could not be restored."""
    found = await connection.fetch(_TABLES, SCHEMAS)
    if not found:
        raise SchemaMissing(reason="it has no tables of Hocket")
    # the tables of another release are not known
    if await connection.fetchval(_REVISION) == migrations.head():
        step_days = [row["suffix"] for row in await connection.fetch(_STEP_DAYS)]
        _refuse_unknown(found, step_days)


async def copy_out(connection: asyncpg.Connection, folder: Path) -> dict[str, Any]:
    """Copy all tables into files, in one snapshot; return the row count of each, the sequences' values,
    and the partitions. Raises what `check` raises."""
    folder.mkdir(mode=0o700)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await check(connection)
        found = await connection.fetch(_TABLES, SCHEMAS)
        # retention drops the tables of past days, of which the snapshot would then have nothing
        every = ", ".join(map(_place, found))
        await connection.execute(f"LOCK TABLE {every} IN ACCESS SHARE MODE", timeout=LOCK_TIMEOUT_S)
        sequences = {
            row["name"]: row["last_value"] for row in await connection.fetch(_SEQUENCES, SCHEMAS)
        }
        partitions = [dict(row) for row in await connection.fetch(_PARTITIONS, SCHEMAS)]
        step_days = [dict(row) for row in await connection.fetch(_STEP_DAYS)]
        rows = {_named(table): await _copied(connection, folder, table) for table in found}
    return {
        "tables": rows,
        "sequences": sequences,
        "partitions": partitions,
        "detached": [
            {"parent": _named(parent), "schema": table["schema"], "name": table["name"]}
            for table, parent in _detached(found)
        ],
        "step_days": step_days,
    }


async def _copied(connection: asyncpg.Connection, folder: Path, table: Any) -> int:
    """Copy a table into a file; return how many rows it has."""
    columns = ", ".join(_quoted(column) for column in table["columns"])
    file = folder / f"{_named(table)}.copy"
    file.touch(mode=0o600)
    done = await connection.copy_from_query(
        f"SELECT {columns} FROM {_own_rows(table)}",
        output=str(file),
        format="binary",
        timeout=COPY_TIMEOUT_S,
    )
    return int(done.rpartition(" ")[2])


def _detached(found: list[Any]) -> list[tuple[Any, Any]]:
    """Return the tables that were partitions, each with its parent."""
    parents = {_named(table): table for table in found if table["partitioned"]}
    detached = []
    for table in found:
        name = _DETACHED.fullmatch(table["name"])
        if name and (parent := parents.get(f"{table['schema']}.{name[1]}")) is not None:
            detached.append((table, parent))
    return detached


def _refuse_unknown(found: list[Any], step_days: list[str]) -> None:
    """Raise PartitionsLeft or TablesUnknown if a restore could not create a table."""
    detached = _detached(found)
    left = [_named(table) for table, of in detached if table["columns"] != of["columns"]]
    if left:
        raise PartitionsLeft(tables=", ".join(left))
    known = KNOWN | {_named(table) for table, _ in detached}
    known |= {f"hocket.{kind}_{suffix}" for kind in ("step", "attempt") for suffix in step_days}
    if unknown := [name for name in map(_named, found) if name not in known]:
        raise TablesUnknown(tables=", ".join(unknown))


def unknown_in(copied: dict[str, Any]) -> str | None:
    """Return what is not written in a manifest as `copy_out` writes it, None if everything is."""
    tables = [*copied.get("partitions", ()), *copied.get("detached", ())]
    names = [part for one in tables for part in (one["schema"], one["name"], one["parent"])]
    if odd := [name for name in names if not re.fullmatch(r"\w+(\.\w+)?", name)]:
        return f"the table `{odd[0]}`"
    bounds = [one["bound"] for one in copied.get("partitions", ())]
    if odd := [bound for bound in bounds if not _BOUND.fullmatch(bound)]:
        return f"the bound `{odd[0]}`"
    times = [one[end] for one in copied.get("step_days", ()) for end in ("from_at", "to_at")]
    if odd := [time for time in times if not _TIME.fullmatch(time)]:
        return f"the time `{odd[0]}`"
    return None


async def copy_in(connection: asyncpg.Connection, folder: Path, copied: dict[str, Any]) -> None:
    """Fill the tables of a newly created schema in one transaction. Referenced tables come before those
    that refer to them, and no triggers run."""
    async with connection.transaction():
        await _partition_as(connection, copied["partitions"])
        for one in copied.get("detached", ()):
            await connection.execute(
                f"CREATE TABLE {_place(one)} (LIKE {_parent(one)} INCLUDING ALL)"
            )
        await _divide_steps_as(connection, copied["step_days"])
        tables = {_named(table): table for table in await connection.fetch(_TABLES, SCHEMAS)}
        for name in reversed(_in_order(tables)):
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {_place(tables[name])})"):
                await connection.execute(f"DELETE FROM {_place(tables[name])}")  # by migrations
        # what triggers wrote for the original rows is among the copied rows
        for name in tables:
            await connection.execute(f"ALTER TABLE {_place(tables[name])} DISABLE TRIGGER USER")
        for name in _in_order(tables):
            if copied["tables"].get(name):
                await connection.copy_to_table(
                    tables[name]["name"],
                    schema_name=tables[name]["schema"],
                    columns=tables[name]["columns"],
                    source=str(folder / f"{name}.copy"),
                    format="binary",
                    timeout=COPY_TIMEOUT_S,
                )
        for name in tables:
            await connection.execute(f"ALTER TABLE {_place(tables[name])} ENABLE TRIGGER USER")
        for name, last in copied["sequences"].items():
            await connection.execute("SELECT setval($1::text::regclass, $2)", name, last)
    await connection.execute("ANALYZE")


async def _partition_as(connection: asyncpg.Connection, wanted: list[dict[str, str]]) -> None:
    """Give empty tables the partitions of the backup: the schema was created with those for the current
    date."""
    for made in await connection.fetch(_PARTITIONS, SCHEMAS):
        await connection.execute(f"DROP TABLE {_place(made)}")
    for one in wanted:
        assert _BOUND.fullmatch(one["bound"]), one
        await connection.execute(
            f"CREATE TABLE {_place(one)} PARTITION OF {_parent(one)} {one['bound']}"
        )


async def _divide_steps_as(connection: asyncpg.Connection, wanted: list[dict[str, str]]) -> None:
    """Give steps and attempts the tables by day of the backup."""
    for made in await connection.fetch(_STEP_DAYS):
        for parent in ("attempt", "step"):
            await connection.execute(f"DROP TABLE hocket.{_quoted(parent + '_' + made['suffix'])}")
    await connection.execute("DELETE FROM hocket.step_days")
    for one in wanted:
        suffix = await connection.fetchval(_MAKE_STEP_DAYS, one["suffix"], one["to_at"])
        assert suffix == one["suffix"], (suffix, one)


async def counted(connection: asyncpg.Connection) -> dict[str, int]:
    """Return how many rows each table has."""
    return {
        _named(table): await connection.fetchval(f"SELECT count(*) FROM {_own_rows(table)}")
        for table in await connection.fetch(_TABLES, SCHEMAS)
    }


def _in_order(tables: dict[str, Any]) -> list[str]:
    """Return the tables in order of dependency: referenced tables first."""
    placed: dict[str, None] = {}

    def place(name: str, on_the_way: tuple[str, ...] = ()) -> None:
        if name in placed or name in on_the_way or name not in tables:
            return
        for needed in tables[name]["needs"]:
            place(needed, (*on_the_way, name))
        placed[name] = None

    for name in tables:
        place(name)
    return list(placed)


def _own_rows(table: Any) -> str:
    """Return the FROM clause for a table's own rows, without those of its tables by day."""
    return _place(table) if table["partitioned"] else f"ONLY {_place(table)}"


def _named(table: Any) -> str:
    return f"{table['schema']}.{table['name']}"


def _parent(table: dict[str, str]) -> str:
    """Return the place of the table that a partition is or was of."""
    schema, _, name = table["parent"].partition(".")
    return f"{_quoted(schema)}.{_quoted(name)}"


def _place(table: Any) -> str:
    return f"{_quoted(table['schema'])}.{_quoted(table['name'])}"


def _quoted(name: str) -> str:
    assert re.fullmatch(r"\w+", name), name
    return f'"{name}"'
