"""Puts the demo's data where pipelines find it: in a schema in Postgres, and in a folder of texts.

`load_tables` creates the schema `demo_data` and a role that can only read it; run again with the same
data, it changes nothing but the role's password. `write_texts` makes the folder hold exactly the texts.
Changes to a database are one transaction, so a crash leaves it unchanged.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import asyncpg

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.workers.demo.elements import data_version, tables, texts

SCHEMA: Final = "demo_data"
READER: Final = "hocket_demo_reader"
LOCK_KEY: Final = 7_306_413
READER_CONNECTIONS: Final = 20
"""How many connections the role may hold at once."""


class DemoRightsMissing(HocketError):
    """The demo's data cannot be loaded: {reason}. Give the user of DATABASE_URL the right to create
    schemas and roles (`ALTER ROLE ... CREATEROLE`), or run the demo on the embedded Postgres."""

    code = "demo_rights_missing"
    error_class = ErrorClass.PERMANENT


async def load_tables(
    connection: "asyncpg.Connection[asyncpg.Record]", *, reader_password: str, timeout_ms: float
) -> bool:
    """Create the schema `demo_data` and its read-only role; return whether rows were written.

    The role `hocket_demo_reader` can then log in with `reader_password`. `timeout_ms` applies to each
    statement. Raises DemoRightsMissing.
    """
    timeout_s = timeout_ms / 1000
    try:
        async with connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock($1)", LOCK_KEY, timeout=timeout_s
            )
            written = await _write_tables(connection, timeout_s)
            await _write_reader(connection, reader_password, timeout_s)
    except asyncpg.InsufficientPrivilegeError as error:
        raise DemoRightsMissing(reason=str(error)) from error
    return written


def write_texts(folder: Path) -> int:
    """Make the folder hold the description of each element as a Markdown file; return how many.

    Files that already say the same are not touched; other Markdown files in it are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = dict(texts())
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        file = folder / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
    return len(wanted)


async def _write_tables(connection: Any, timeout_s: float) -> bool:
    there = await connection.fetchval(
        "SELECT obj_description(to_regnamespace($1)::oid, 'pg_namespace')",
        SCHEMA,
        timeout=timeout_s,
    )
    if there == data_version():
        return False
    ddl = files(__package__).joinpath("tables.sql").read_text("utf-8")
    await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", timeout=timeout_s)
    await connection.execute(ddl, timeout=timeout_s)
    rows = tables()
    for table in ("series", "element", "isotope", "ionization_energy", "element_name"):
        await connection.copy_records_to_table(
            table, schema_name=SCHEMA, records=getattr(rows, table), timeout=timeout_s
        )
    await connection.execute(
        f"COMMENT ON SCHEMA {SCHEMA} IS {_literal(data_version())}", timeout=timeout_s
    )
    return True


async def _write_reader(connection: Any, password: str, timeout_s: float) -> None:
    there = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", READER, timeout=timeout_s
    )
    verb = "ALTER" if there else "CREATE"
    for statement in (
        f"{verb} ROLE {READER} LOGIN NOINHERIT CONNECTION LIMIT {READER_CONNECTIONS}",
        f"ALTER ROLE {READER} PASSWORD {_literal(password)}",
        f"ALTER ROLE {READER} SET default_transaction_read_only = on",
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {READER}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {READER}",
    ):
        await connection.execute(statement, timeout=timeout_s)


def _literal(text: str) -> str:
    assert "\\" not in text, "a backslash would depend on the server's settings"
    return "'" + text.replace("'", "''") + "'"
