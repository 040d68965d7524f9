"""Brings the schema of Postgres to this release, with Alembic.

Many processes may call `migrate` at once: the lock on the table of revisions lets one of them work, and
the others then find it done. The first time, that table does not exist, so an advisory lock is used.

The previous release may keep running during a migration. Its statements and the migration may lock the
same tables in different orders. So the migration first locks the tables that are written all the time,
in the order in which a commit locks them; if Postgres resolves a deadlock by aborting it, it starts
again, because nothing was changed.

A newer schema is left as it is: this release can run on the next release's schema, so that one can roll
back to it (docs/how-to/upgrade.md). The revisions are in the folder `migrations/` of the checkout, or in
the installed package.
"""

import asyncio
import itertools
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg
import structlog

from hocket.kit.postgres import requirements
from hocket.schemas.errors import ErrorClass, HocketError

REVISIONS = "public.hocket_revision"
LOCK = f"LOCK TABLE {REVISIONS} IN SHARE ROW EXCLUSIVE MODE"
"""Only logins that may write the table can take this lock, so no login for reports can hold it."""
FIRST_LOCK = "SELECT pg_advisory_xact_lock(7306411)"
LOCK_TIMEOUT_MS = 5_000
LOCK_WAIT_S = 60
BUSY_TABLES = ("partition", "run", "step", "attempt")
"""In the order in which a coordinator's commit locks them."""
TRIES = 20
PAUSE_S = 0.5
"""Pause after a try that failed because of a lock; it grows by this much each time, up to
MAX_PAUSE_S."""
MAX_PAUSE_S = 5.0
MET_A_LOCK = frozenset({"40P01", "55P03"})
"""SQLSTATEs of a deadlock, and of a lock that was not available within LOCK_TIMEOUT_MS."""
POLL_S = 0.1
REVISION_DIGITS = 4


log = structlog.get_logger(__name__)


class SchemaNotReady(HocketError):
    """Postgres is at schema {found}, but this release needs {wanted}. Run `hocket migrate`, or wait
    for the process that is migrating it."""

    code = "schema_not_ready"
    error_class = ErrorClass.UNAVAILABLE


class MigrationFailed(HocketError):
    """The schema cannot be brought to this release: {reason}. Nothing was changed. See
    docs/how-to/postgres.md."""

    code = "migration_failed"


async def migrate(database_url: str, revision: str = "head") -> None:
    """Bring the database to a revision (the newest by default). Raises DatabaseUnfit if the database
    lacks something, and DatabaseRefused, DatabaseUnavailable, SessionsShared and MigrationFailed."""
    await requirements.check(database_url)
    # imported here: only the process that migrates pays for SQLAlchemy and Alembic (0.7 s)
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(  # asyncpg parses the URL: SQLAlchemy does not know `sslmode`
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(database_url),
        poolclass=NullPool,
    )
    try:
        for number in itertools.count(1):
            try:
                async with engine.connect() as connection:
                    await connection.run_sync(_upgrade, revision)
                    await connection.commit()
                return
            except (
                DBAPIError,
                CommandError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
            ) as error:
                cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
                reason = str(cause).partition("\n")[0]
                if getattr(cause, "sqlstate", None) not in MET_A_LOCK or number == TRIES:
                    raise MigrationFailed(reason=reason) from error
                log.info("migration_tried_again", reason=reason, tries=number)
                await asyncio.sleep(min(PAUSE_S * number, MAX_PAUSE_S))
    finally:
        await engine.dispose()


async def current(database_url: str) -> str | None:
    """Return the revision that the database is at, None before the first migration."""
    connection = await asyncpg.connect(database_url, timeout=5)
    try:
        found = await connection.fetchval("SELECT to_regclass('public.hocket_revision')")
        if found is None:
            return None
        revision: str | None = await connection.fetchval(
            "SELECT version_num FROM public.hocket_revision"
        )
        return revision
    finally:
        await connection.close()


def head() -> str:
    """Return the newest revision of this release; the numbers in the file names order the revisions."""
    return max(file.name for file in (folder() / "versions").glob("[0-9]*.py"))[:REVISION_DIGITS]


async def wait_current(database_url: str, timeout_ms: float) -> None:
    """Wait until the database is at this release's revision or a later one, or raise SchemaNotReady."""
    wanted = head()
    found: str | None = "unknown"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while loop.time() < deadline:
        try:
            found = await current(database_url)
        except (
            OSError,
            asyncpg.PostgresError,
            asyncpg.InternalClientError,
            TimeoutError,
        ) as error:
            found = f"unknown ({error})"
        if is_at_least(found, wanted):
            return
        await asyncio.sleep(POLL_S)
    raise SchemaNotReady(found=found, wanted=wanted)


def is_at_least(found: str | None, wanted: str) -> bool:
    """Tell whether a revision is the wanted one or a later one; their numbers order them."""
    return found is not None and found.isdigit() and found >= wanted


def folder() -> Path:
    """Return the folder of the revisions."""
    packaged = Path(str(files("hocket.kit"))) / "_migrations"
    return packaged if packaged.exists() else Path(__file__).parents[4] / "migrations"


def run_sql(name: str) -> None:
    """Run the statements of `migrations/sql/NAME` in the transaction of the revision that calls this."""
    from alembic import op

    text = (folder() / "sql" / name).read_text()
    # on the driver's own connection: a file holds many statements, and colons that are not parameters
    dbapi: Any = op.get_bind().connection.dbapi_connection
    dbapi.run_async(lambda driver: driver.execute(text))


def _upgrade(connection: Any, revision: str) -> None:
    from alembic import command
    from sqlalchemy import text

    connection.execute(text(f"SET lock_timeout = {LOCK_WAIT_S * 1000}"))
    known = connection.execute(text(f"SELECT to_regclass('{REVISIONS}')")).scalar()
    connection.execute(text(FIRST_LOCK if known is None else LOCK))
    connection.execute(text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))
    if known is not None and revision == "head":
        found = connection.execute(text(f"SELECT version_num FROM {REVISIONS}")).scalar()
        if is_at_least(found, head()):
            return
    if known is not None:
        _lock_busy_tables(connection)
    config = _config()
    config.attributes["connection"] = connection
    if revision == "base" or revision.startswith("-"):
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


def _lock_busy_tables(connection: Any) -> None:
    from sqlalchemy import text

    for table in BUSY_TABLES:
        if connection.execute(text(f"SELECT to_regclass('hocket.{table}')")).scalar() is not None:
            connection.execute(text(f"LOCK TABLE hocket.{table} IN ACCESS EXCLUSIVE MODE"))


def _config() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder()))
    return config
